"""Real servers for tests, each started on ports of its own with its data in a directory of the test's."""
