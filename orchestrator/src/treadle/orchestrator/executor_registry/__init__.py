"""From the tables of a profile to executors: `kinds` (those that come with treadle), `places` (what there is)."""
