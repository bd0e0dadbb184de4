from .entry_points import (
    load_plugin as load_plugin,
    naming_plugin as naming_plugin,
    plugin_names as plugin_names,
    plugin_path as plugin_path,
    working as working,
)
