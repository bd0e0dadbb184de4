from .graph_of import (
    ImportedModel as ImportedModel,
    imported_graph as imported_graph,
)
