"""The numbers by which mapping files and edits are read and quoted.

Of each: unit | meaning | where it comes from.
"""

from typing import Final

MOST_SHOWN: Final = 3
"""nodes | of a side that a remark names | queries, keys and values: the most that is fused by hand"""

DEEPEST: Final = 6
"""levels | of objects and lists in a match set | one with mapping files in it has six"""

LARGEST_FILE: Final = 16 * 2**20
"""bytes | of a mapping file or match set that is read | bounds the time it takes"""

DEEPEST_LEVEL: Final = 4
"""levels | of mappings and lists in a mapping file | a layer mapping and an operator mapping have two"""

LONGEST_SHOWN: Final = 100
"""characters | of the file that an error quotes | chosen: they fit in a line"""

MOST_PAIRED: Final = 4096
"""golden times target tensors | of an item of a view mapping | bounds the time: each is held against each"""
