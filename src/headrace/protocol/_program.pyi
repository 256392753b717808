class Program:
    version: int
    flexible: bool
    api_key: int
    min_size: int
