"""Questions to the records that are there: listings, comparisons, histories, the frontier."""
