from .graph_of import (
    ImportedModel as ImportedModel,
    check_loss as check_loss,
    imported_graph as imported_graph,
)
