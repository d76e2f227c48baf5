"""The paper's experiments: tables of rows, each a small configuration, and what runs them.

Nothing here imports torch but `runner`, `scores` and `record`.
"""

from rankspace.experiments.tables import Row, Table, load_table, table_names

__all__ = ["Row", "Table", "load_table", "table_names"]
