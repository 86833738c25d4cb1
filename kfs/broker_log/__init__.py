"""The write side of a log, with the names that brokers use: code that appends, rolls, loads and recovers segments."""
