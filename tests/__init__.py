"""The tests. Each directory of them is a package, so that all of them can say ``from tests.expected import …``."""
