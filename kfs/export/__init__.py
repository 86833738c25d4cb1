"""Many records at once: chosen, rendered, and put out in offset order, on all cores."""
