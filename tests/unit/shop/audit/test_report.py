from headrace.shop.audit.report import DeadLetters, Input, Latency, Output, Report, table

INPUT = Input("ods_log", records=1200, sound=1100, duplicates=50, unrouted=0, broken=50)
LETTERS = DeadLetters("ods_log", letters=50, expected=50)


def test_report_without_violations() -> None:
    report = Report([INPUT], [Output("dwd_page", 1100, 1100)], [LETTERS], Latency(250, 1500, 2345))
    assert report.ok
    assert report.violations == []
    assert report.lines() == [
        "input    records  sound  duplicates  unrouted  broken",
        "-------  -------  -----  ----------  --------  ------",
        "ods_log    1,200  1,100          50         0      50",
        "",
        "output                    rows  expected  lost  doubled  unexpected  misplaced  disordered",
        "-----------------------  -----  --------  ----  -------  ----------  ---------  ----------",
        "dwd_page                 1,100     1,100     0        0           0          0           0",
        "dead letters of ods_log     50        50     0        0           0",
        "",
        "latency from event to clean rows: p50 0.25 s, p99 1.50 s, maximum 2.35 s",
        "",
        "audit passed: nothing lost, nothing doubled, order per key intact",
    ]


def test_names_and_counts_each_violation() -> None:
    outputs = [
        Output("dwd_page", 9, 10, lost=2, doubled=1),
        Output("dwd_start", 10, 10, lost=1, unexpected=1, misplaced=1, disordered=1),
    ]
    letters = [DeadLetters("ods_log", 1, 2, lost=1), DeadLetters("ods_db", 3, 1, doubled=1, unexpected=2)]
    report = Report([INPUT], outputs, letters, examples=["dwd_page: event 7 has 0 of 1 rows"])
    assert not report.ok
    assert report.violations == [
        "3 rows lost",
        "1 dead letter lost",
        "1 row written more than once",
        "1 dead letter written more than once",
        "1 row without an origin in the input",
        "2 dead letters without an origin in the input",
        "1 event with a wrong key or origin",
        "1 row out of order within their key",
    ]
    assert report.lines()[-4:] == [
        "examples",
        "  dwd_page: event 7 has 0 of 1 rows",
        "",
        f"audit FAILED: {'; '.join(report.violations)}",
    ]


def test_table() -> None:
    assert table(["a", "long"], [["x", 1], ["yyy", None]]) == ["a    long", "---  ----", "x       1", "yyy"]
