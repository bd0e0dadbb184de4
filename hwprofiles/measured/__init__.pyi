from .measured_tables import (
    measured_table as measured_table,
    measured_table_names as measured_table_names,
)
