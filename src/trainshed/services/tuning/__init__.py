"""Studies: searches that clients drive themselves, by asking for trials and reporting what came of them."""
