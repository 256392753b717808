"""JSON numbers, dates and time zones. A part of `_json_reader`; see `_json_text` for the rules."""

from libc.math cimport INFINITY, NAN
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memcmp, memcpy

from headrace.pipelines._json_text cimport MAX_PLAIN_DIGITS, Cursor, find_quote, is_delimiter

cdef extern from *:
    """
    static const double headrace_exact_powers[23] = {  /* powers of ten that a double stores exactly */
        1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11,
        1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22
    };
    """
    const double* EXACT_POWERS "headrace_exact_powers"

cdef extern from "Python.h":
    double PyOS_string_to_double(const char* text, char** end, void* overflow_exception) except? -1.0

cdef enum:
    MAX_NUMBER = 100
    MAX_EXACT_POWER = 22


cdef inline bint read_int(Cursor* cursor, int64_t* value) noexcept nogil:
    cdef const uint8_t* at = cursor.at
    cdef const uint8_t* begin
    cdef uint64_t number = 0
    cdef bint is_negative = at[0] == 45
    if is_negative:
        at += 1
    begin = at
    while at < cursor.end and 48 <= at[0] <= 57:
        if at - begin == 19:
            return False
        number = number * 10 + (at[0] - 48)
        at += 1
    if at == begin or (begin[0] == 48 and (at - begin > 1 or is_negative)):
        return False
    if number > <uint64_t>0x7FFFFFFFFFFFFFFF + is_negative:
        return False
    value[0] = <int64_t>(0 - number) if is_negative else <int64_t>number
    cursor.at = at
    return is_delimiter(cursor)


cdef inline double parse_double(const uint8_t* begin, Py_ssize_t size) noexcept with gil:
    """Returns a number that is written as in JSON, rounded correctly."""
    cdef char[MAX_NUMBER + 1] text
    memcpy(text, begin, size)
    text[size] = 0
    try:
        return PyOS_string_to_double(text, NULL, NULL)
    except ValueError:  # never: the caller checked it
        return NAN


cdef inline bint read_number(Cursor* cursor, double* value) noexcept nogil:
    """Reads a number. -0 without decimals is unusual: an integer has no such value."""
    cdef const uint8_t* begin = cursor.at
    cdef const uint8_t* at = begin
    cdef const uint8_t* end = cursor.end
    cdef const uint8_t* part
    cdef uint64_t digits = 0
    cdef int significant = 0, power = 0, exponent = 0
    cdef bint is_whole = True, is_negative = at[0] == 45, is_small = False
    if end - at > MAX_NUMBER:
        end = at + MAX_NUMBER
    if is_negative:
        at += 1
    part = at
    while at < end and 48 <= at[0] <= 57:
        significant += significant > 0 or at[0] != 48
        if significant <= MAX_PLAIN_DIGITS:
            digits = digits * 10 + (at[0] - 48)
        at += 1
    if at == part or (part[0] == 48 and at - part > 1):
        return False
    if at < end and at[0] == 46:
        is_whole = False
        at += 1
        part = at
        while at < end and 48 <= at[0] <= 57:
            significant += significant > 0 or at[0] != 48
            if significant <= MAX_PLAIN_DIGITS:
                digits = digits * 10 + (at[0] - 48)
            power -= 1
            at += 1
        if at == part:
            return False
    if at < end and (at[0] == 101 or at[0] == 69):
        is_whole = False
        at += 1
        if at < end and (at[0] == 43 or at[0] == 45):
            is_small = at[0] == 45
            at += 1
        part = at
        while at < end and at - part < 5 and 48 <= at[0] <= 57:
            exponent = exponent * 10 + (at[0] - 48)
            at += 1
        if at == part:
            return False
        power += -exponent if is_small else exponent
    if is_whole and is_negative and not significant:
        return False
    cursor.at = at
    if not is_delimiter(cursor):  # also if the number is too long
        return False
    if significant <= MAX_PLAIN_DIGITS and -MAX_EXACT_POWER <= power <= MAX_EXACT_POWER:  # one exact operation
        value[0] = <double>digits
        value[0] = value[0] * EXACT_POWERS[power] if power >= 0 else value[0] / EXACT_POWERS[-power]
        if is_negative:
            value[0] = -value[0]
    else:
        value[0] = parse_double(begin, at - begin)
    return True


cdef inline bint read_name_of_number(Cursor* cursor, double* value) noexcept nogil:
    cdef const uint8_t* begin = NULL
    cdef const uint8_t* stop = NULL
    cdef bint has_escape = False
    if not find_quote(cursor, &begin, &stop, &has_escape):
        return False
    if stop - begin == 3 and memcmp(begin, b"NaN", 3) == 0:
        value[0] = NAN
    elif stop - begin == 8 and memcmp(begin, b"Infinity", 8) == 0:
        value[0] = INFINITY
    elif stop - begin == 9 and memcmp(begin, b"-Infinity", 9) == 0:
        value[0] = -INFINITY
    else:
        return False
    return True


cdef inline int read_digits(const uint8_t* at, int count) noexcept nogil:
    cdef int i, value = 0
    for i in range(count):
        if at[i] < 48 or at[i] > 57:
            return -1
        value = value * 10 + (at[i] - 48)
    return value


cdef inline int64_t days_of(int64_t year, int month, int day) noexcept nogil:
    """Returns the days since 1970 of a date after 0000-03-01. Years are counted from March."""
    cdef int64_t era, year_of_era, day_of_year
    if month <= 2:
        year -= 1
    era = year // 400
    year_of_era = year - era * 400
    day_of_year = (153 * (month + (9 if month <= 2 else -3)) + 2) // 5 + day - 1
    return era * 146097 + year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + day_of_year - 719468


cdef inline int days_in_month(int year, int month) noexcept nogil:
    if month == 2:
        return 29 if year % 4 == 0 and (year % 100 != 0 or year % 400 == 0) else 28
    return 30 if month == 4 or month == 6 or month == 9 or month == 11 else 31


cdef inline bint read_day(const uint8_t* at, int64_t* days) noexcept nogil:
    """Reads ten bytes: 2026-01-31."""
    cdef int year = read_digits(at, 4), month = read_digits(at + 5, 2), day = read_digits(at + 8, 2)
    if at[4] != 45 or at[7] != 45 or year < 1 or month < 1 or month > 12 or day < 1 or day > days_in_month(year, month):
        return False
    days[0] = days_of(year, month, day)
    return True


cdef inline bint read_zone(const uint8_t* at, const uint8_t* stop, int64_t* seconds) noexcept nogil:
    """Reads nothing, Z, or +01:00. Sets the difference to UTC."""
    cdef int hour, minute
    seconds[0] = 0
    if at == stop or (stop - at == 1 and at[0] == 90):
        return True
    if stop - at != 6 or (at[0] != 43 and at[0] != 45) or at[3] != 58:
        return False
    hour, minute = read_digits(at + 1, 2), read_digits(at + 4, 2)
    if hour < 0 or hour > 17 or minute < 0 or minute > 59:
        return False
    seconds[0] = hour * 3600 + minute * 60
    if at[0] == 45:
        seconds[0] = -seconds[0]
    return True
