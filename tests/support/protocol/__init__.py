"""Test helpers: sample messages, kio's classes, a fuzzer."""
