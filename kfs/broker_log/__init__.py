"""The write side of a log as brokers have it, under their names: what appends, rolls, loads and recovers segments."""
