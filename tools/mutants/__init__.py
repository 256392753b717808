"""Mutation tests: changes the code in small ways, and reports the changes that no test detects (`make mutants`).

    mutations     finds the possible changes of a module
    test_map      which tests call which function; measured once and cached by test file
    runner        runs the tests that call a changed function, with the change applied by an import hook
    report        survivors as diffs, and those that `explained.toml` explains
    tracing, selection, overlay    parts that run inside the test processes

The work tree is never modified: the tests run in a copy of it.
"""
