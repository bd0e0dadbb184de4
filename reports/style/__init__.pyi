from .device_lists import (
    compact_devices as compact_devices,
)
from .packing import (
    pack_array as pack_array,
    pack_json as pack_json,
    pack_signed as pack_signed,
    pack_steps as pack_steps,
)
from .palette import (
    BLUE as BLUE,
    COMMUNICATION as COMMUNICATION,
    COMPUTE as COMPUTE,
    CONFIGURATIONS as CONFIGURATIONS,
    GREEN as GREEN,
    IDLE as IDLE,
    MARK as MARK,
    OLIVE as OLIVE,
    ORANGE as ORANGE,
    PALETTE as PALETTE,
    PLAIN as PLAIN,
    PURPLE as PURPLE,
    RUNGS as RUNGS,
    SERIES as SERIES,
    SYMBOLS as SYMBOLS,
    kind_colours as kind_colours,
)
from .units import (
    Unit as Unit,
    byte_unit as byte_unit,
    memory_unit as memory_unit,
    plain_unit as plain_unit,
    three_digits as three_digits,
    time_unit as time_unit,
)
