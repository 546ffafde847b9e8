"""The paper as data, and plans that train its tables, figures, ablations and baselines."""
