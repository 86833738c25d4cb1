"""A small data directory to experiment with, made by the package's own writer. Its bytes are always the same."""

from kfs.demo.data_directory import WrittenTopic, write_data_directory
from kfs.demo.machines import empty, launch_info, legacy_audit, sensor_readings
from kfs.demo.payments import payments
from kfs.demo.shop import clickstream, customer_profiles, orders, thumbnails
from kfs.demo.topic import DemoTopic

__all__ = ["WrittenTopic", "demo_topics", "write_demo"]


def demo_topics() -> list[DemoTopic]:
    """Return the demo's topics, sorted by name."""
    return [
        clickstream(),
        customer_profiles(),
        empty(),
        launch_info(),
        legacy_audit(),
        orders(),
        payments(),
        sensor_readings(),
        thumbnails(),
    ]


def write_demo(path: str) -> list[WrittenTopic]:
    """Write the demo's data directory; raise :class:`~kfs.errors.KfsError` unless ``path`` is empty or missing."""
    return write_data_directory(path, demo_topics())
