class Program:
    version: int
    flexible: bool
    api_key: int
    least_size: int
