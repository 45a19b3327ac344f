"""Write the logs of `tests/dumps/engines/llama_cpp` with llama.cpp's own `llama-eval-callback`.

    python tests/interop/write_llama_cpp_logs.py out --tool build/bin/llama-eval-callback

Writes a tiny Llama with random weights as GGUF and prints what its operators give: `golden`, `healthy` (the
key-value cache in float32, not float16) and `target` (`blk.1.ffn_down.weight` times 1.5). Needs gguf.
"""

import argparse
import subprocess
import tempfile
from pathlib import Path

import gguf
import numpy as np

WIDTH, INNER, LAYERS, HEADS, KV_HEADS = 32, 64, 3, 4, 2
TOKENS = [b"<unk>", b"<s>", b"</s>", *(f"<0x{byte:02X}>".encode() for byte in range(256))]


def write_model(file: Path, factor: float) -> None:
    """Write the model, one of its weights times a factor."""
    made = np.random.default_rng(7)
    head = WIDTH // HEADS
    writer = gguf.GGUFWriter(file, "llama")
    writer.add_context_length(64)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_dimension_count(head)
    writer.add_rope_freq_base(10000.0)
    writer.add_tokenizer_model("llama")
    writer.add_token_list(TOKENS)
    writer.add_token_scores([0.0] * len(TOKENS))
    writer.add_token_types([2, 3, 3, *[6] * 256])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)

    def add(name: str, *shape: int, scale: float = 0.2, times: float = 1.0) -> None:
        writer.add_tensor(name, (made.standard_normal(shape) * scale * times).astype(np.float32))

    def add_norm(name: str) -> None:
        writer.add_tensor(name, (1 + 0.1 * made.standard_normal(WIDTH)).astype(np.float32))

    add("token_embd.weight", len(TOKENS), WIDTH, scale=1.0)
    for layer in range(LAYERS):
        block = f"blk.{layer}"
        add_norm(f"{block}.attn_norm.weight")
        add(f"{block}.attn_q.weight", WIDTH, WIDTH)
        add(f"{block}.attn_k.weight", head * KV_HEADS, WIDTH)
        add(f"{block}.attn_v.weight", head * KV_HEADS, WIDTH)
        add(f"{block}.attn_output.weight", WIDTH, WIDTH)
        add_norm(f"{block}.ffn_norm.weight")
        add(f"{block}.ffn_gate.weight", INNER, WIDTH)
        add(f"{block}.ffn_up.weight", INNER, WIDTH)
        add(f"{block}.ffn_down.weight", WIDTH, INNER, times=factor if layer == 1 else 1.0)
    add_norm("output_norm.weight")
    add("output.weight", len(TOKENS), WIDTH)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main() -> None:
    """Write the three logs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--tool", default="llama-eval-callback")
    options = parser.parse_args()
    runs = {"golden": (1.0, []), "healthy": (1.0, ["-ctk", "f32", "-ctv", "f32"]), "target": (1.5, [])}
    for name, (factor, more) in runs.items():
        folder = options.out / name
        folder.mkdir(parents=True)
        with tempfile.NamedTemporaryFile(suffix=".gguf") as model:
            write_model(Path(model.name), factor)
            command = [options.tool, "-m", model.name, "-p", "Hello there", "-t", "1", "-ngl", "0", *more]
            subprocess.run([*command, "--log-file", folder / "eval.log"], check=True, capture_output=True)


if __name__ == "__main__":
    main()
