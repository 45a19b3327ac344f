"""Two dumps in, a report out: plan, measure, judge."""
