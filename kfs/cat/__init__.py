"""Records written in offset order, on all cores: what ``kfs cat`` prints, as lines, raw values or a table file."""
