"""Dumps of SGLang's dumper."""
