"""Test helpers: a reference implementation, other projects' codecs, a fuzzer."""
