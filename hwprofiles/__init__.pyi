from .aliases import (
    Bools as Bools,
    Floats as Floats,
    Ints as Ints,
)
from .control_characters import (
    check_texts as check_texts,
    printable as printable,
)
from .errors import (
    ConfigError as ConfigError,
    DeviceMemoryError as DeviceMemoryError,
    FittingChange as FittingChange,
    InfeasiblePlanError as InfeasiblePlanError,
    OrreryError as OrreryError,
    UnreachableError as UnreachableError,
    memory_in_words as memory_in_words,
)
from .html_tables import (
    html_table as html_table,
)
from .input_arrays import (
    ARRAYS_MIB as ARRAYS_MIB,
    array_input as array_input,
    check_archive as check_archive,
)
from .input_files import (
    INPUT_LIMIT as INPUT_LIMIT,
    AnyPath as AnyPath,
    check_input as check_input,
    input_bytes as input_bytes,
    input_text as input_text,
    json_input as json_input,
    last_input as last_input,
    noted_inputs as noted_inputs,
    path_of as path_of,
    reserved_output as reserved_output,
    text_of as text_of,
    yaml_input as yaml_input,
)
from .input_values import (
    parsed_yaml as parsed_yaml,
)
from .old_keywords import (
    renamed_keywords as renamed_keywords,
    warn_old_name as warn_old_name,
)
from .progress import (
    Interrupted as Interrupted,
    Progress as Progress,
    keeping as keeping,
)
from .requests import (
    check_fields as check_fields,
    option as option,
    positive_integer as positive_integer,
    whole_number as whole_number,
)
from .rows import (
    grouped_rows as grouped_rows,
    row_entries as row_entries,
    row_owners as row_owners,
)
from .rule_texts import (
    broken_rules as broken_rules,
)
from .suggestions import (
    did_you_mean as did_you_mean,
)
from .units import (
    BITS_PER_BYTE as BITS_PER_BYTE,
    GIB as GIB,
    GIGA as GIGA,
    HOUR_S as HOUR_S,
    KILO as KILO,
    MICRO as MICRO,
    MILLI as MILLI,
    NANO as NANO,
    TERA as TERA,
)
from .whole_files import (
    replacing as replacing,
)
