#!/usr/bin/env python3
"""torch_decode.py PEER [--model NAME] [--device cuda|cpu] [--new-tokens N]: how fast one sequence decodes in transformers' Llama on
PyTorch with weights as PEER stores them. Prints a JSON object.

The model is transformers' own: its decoder layers, norms and rotary embedding, a static cache layer for each of them, scaled dot-product
attention over the cache's whole room. All matrices are in the peer's form, the head included; weights are random, the choice is greedy.
A step is captured into a CUDA graph, so that the host costs nothing, once as it is and once with each layer compiled by torch.compile
(one layer's code serves them all); the faster one counts. Tokens are not read by the host while steps run."""
import argparse
import json
import statistics
import sys
import time

import torch
import torch._inductor.config as inductor
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.cache_utils import StaticLayer

SHAPES = {  # those of Tenon's synthetic models
    "llama-2-7b": dict(hidden_size=4096, intermediate_size=11008, num_hidden_layers=32, num_attention_heads=32, num_key_value_heads=32,
                       vocab_size=32000),
    "llama-3-8b": dict(hidden_size=4096, intermediate_size=14336, num_hidden_layers=32, num_attention_heads=32, num_key_value_heads=8,
                       vocab_size=128256),
    "stories15m": dict(hidden_size=288, intermediate_size=768, num_hidden_layers=6, num_attention_heads=6, num_key_value_heads=6,
                       vocab_size=32000),
}


def replace_linears(model, make):
    for path, module in list(model.named_modules()):
        if isinstance(module, torch.nn.Linear):
            parent, _, name = path.rpartition(".")
            setattr(model.get_submodule(parent), name, make(module))


def bnb_4bit(model, args):
    """Blocks of 64 have a scale in f32 each (no double quantization), and are multiplied in fp16."""
    import bitsandbytes as bnb

    def make(module):
        made = bnb.nn.Linear4bit(module.in_features, module.out_features, bias=False, compute_dtype=module.weight.dtype, quant_type="nf4",
                                 compress_statistics=False, device="meta")
        made.weight = bnb.nn.Params4bit(module.weight.data, requires_grad=False, quant_type="nf4", compress_statistics=False, module=made)
        return made.to(args.device)

    replace_linears(model, make)


def bnb_8bit(threshold):
    """In LLM.int8() rows of weights and x are in int8; numbers of x beyond the threshold, if it is not 0, are multiplied in fp16."""
    def quantize(model, args):
        import bitsandbytes as bnb

        def make(module):
            made = bnb.nn.Linear8bitLt(module.in_features, module.out_features, bias=False, has_fp16_weights=False, threshold=threshold,
                                       device="meta")
            made.weight = bnb.nn.Int8Params(module.weight.data, requires_grad=False, has_fp16_weights=False)
            return made.to(args.device)

        replace_linears(model, make)
    return quantize


def torchao_int8(model, _):
    """Rows of weights are in int8; x stays in bf16."""
    from torchao.quantization import Int8WeightOnlyConfig, quantize_
    quantize_(model, Int8WeightOnlyConfig())


def torchao_int4(model, _):
    """Groups of 64 with scales and zero points in bf16, in the order that PyTorch's own int4 product reads (tinygemm), which
    fills rows up to whole 1024 columns: 11008 become 11264."""
    from torchao.quantization import Int4WeightOnlyConfig, quantize_
    quantize_(model, Int4WeightOnlyConfig(group_size=64, int4_packing_format="tile_packed_to_4d"))


MOST_SECONDS = 10  # after which no further run begins
# How matrices are quantized, the type of everything else, and whether the GPU can run steps alone: the host finds
# outliers, so such a step is neither captured nor compiled.
PEERS = {"bf16": (lambda model, args: None, torch.bfloat16, True), "bnb-nf4": (bnb_4bit, torch.float16, True),
         "bnb-int8": (bnb_8bit(0.0), torch.float16, True), "bnb-int8-outliers": (bnb_8bit(6.0), torch.float16, False),
         "torchao-int8": (torchao_int8, torch.bfloat16, True), "torchao-int4": (torchao_int4, torch.bfloat16, True)}


def make_model(args, quantize, dtype):
    config = LlamaConfig(**SHAPES[args.model], max_position_embeddings=4096, attn_implementation="sdpa", tie_word_embeddings=False)
    torch.set_default_dtype(dtype)
    with torch.device(args.device):
        model = LlamaForCausalLM(config).eval().requires_grad_(False)
    quantize(model, args)
    for layer in model.model.layers:
        layer.self_attn.layer_idx = 0  # each has a cache of its own, so that all layers are the same code
    return model


class Decoder:
    """This is one sequence. `token` (1, 1) and `position` (1) are what the next step begins with."""

    def __init__(self, model, args):
        self.model, self.args = model, args
        self.room = (args.prompt_tokens + args.new_tokens + 63) // 64 * 64
        self.caches = [StaticLayer(self.room) for _ in model.model.layers]
        self.token = torch.zeros(1, 1, dtype=torch.long, device=args.device)
        self.position = torch.zeros(1, dtype=torch.long, device=args.device)
        self.before, self.layers, self.after = self.embed, list(model.model.layers), self.choose

    def embed(self, tokens, positions):
        """Returns x (1, rows, hidden), cosines and sines, and which places of the cache each row sees."""
        x = self.model.model.embed_tokens(tokens)
        seen = torch.arange(self.room, device=x.device)[None, :] <= positions[:, None]
        return x, self.model.model.rotary_emb(x, positions[None]), seen[None, None]

    def choose(self, x):
        return self.model.lm_head(self.model.model.norm(x[:, -1:])).argmax(-1)

    def run(self, tokens, positions):
        x, embeddings, seen = self.before(tokens, positions)
        for layer, cache in zip(self.layers, self.caches):
            x = layer(x, attention_mask=seen, past_key_values=cache, position_embeddings=embeddings)
        return self.after(x)

    def prompt(self):
        """Begins the sequence anew; not compiled."""
        for cache in self.caches:
            if cache.is_initialized:
                cache.cumulative_length.zero_()
        compiled = self.before, self.layers, self.after
        self.before, self.layers, self.after = self.embed, [layer.forward_as_it_is for layer in self.model.model.layers], self.choose
        positions = torch.arange(self.args.prompt_tokens, device=self.args.device)
        tokens = (positions[None] * 7919 + 1) % self.model.config.vocab_size
        self.token.copy_(self.run(tokens, positions))
        self.position.fill_(self.args.prompt_tokens)
        self.before, self.layers, self.after = compiled

    def step(self):
        self.token.copy_(self.run(self.token, self.position))
        self.position.add_(1)

    def compile(self):
        self.before = torch.compile(self.embed, dynamic=False)
        self.after = torch.compile(self.choose, dynamic=False)
        for layer in self.layers:
            layer.compile(dynamic=False)


def captured(decoder):
    """Returns a function that replays a step."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            decoder.step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        decoder.step()
    return graph.replay


def tokens_per_second(decoder, args, graph):
    wait = torch.cuda.synchronize if args.device == "cuda" else lambda: None
    decoder.prompt()
    decoder.step()  # whatever is compiled or found out once
    step = captured(decoder) if graph else decoder.step
    for _ in range(min(20, args.new_tokens)):  # to warm up
        step()
    speeds, until = [], time.perf_counter() + MOST_SECONDS
    while len(speeds) < args.runs and (not speeds or time.perf_counter() < until):
        decoder.prompt()
        wait()
        begin = time.perf_counter()
        for _ in range(args.new_tokens - 1):
            step()
        wait()
        speeds.append((args.new_tokens - 1) / (time.perf_counter() - begin))
    return statistics.median(speeds)


def measure(args):
    quantize, dtype, alone = PEERS[args.peer]
    graph = alone and args.device == "cuda"
    began = time.perf_counter()
    decoder = Decoder(make_model(args, quantize, dtype), args)
    for layer in decoder.layers:
        layer.forward_as_it_is = layer.forward
    built = time.perf_counter()
    result = {"as_it_is": tokens_per_second(decoder, args, graph)}
    ran = time.perf_counter()
    if alone and not args.no_compile:
        try:
            inductor.coordinate_descent_tuning = True  # as torchao recommends for decoding
            decoder.compile()
            result["compiled"] = tokens_per_second(decoder, args, graph)
        except Exception as error:  # whatever a compiler throws: the peer is then measured as it is
            result["problem"] = f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else ''}"
    result["seconds_to_build_run_compile"] = [round(b - a, 1) for a, b in ((began, built), (built, ran), (ran, time.perf_counter()))]
    best = max(("as_it_is", "compiled"), key=lambda key: result.get(key, 0))
    result["tok_per_s"] = result[best]
    result["how"] = f"{'layers compiled' if best == 'compiled' else 'as it is'}, {'a CUDA graph' if graph else 'no graph'}"
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("peer", choices=PEERS)
    parser.add_argument("--model", default="llama-2-7b", choices=SHAPES)
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--prompt-tokens", type=int, default=16)
    parser.add_argument("--new-tokens", type=int, default=200)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--no-compile", action="store_true", help="measure it as it is only, which takes less time")
    args = parser.parse_args()
    with torch.no_grad():
        result = measure(args)
    result["versions"] = {name: sys.modules[name].__version__ for name in ("torch", "transformers", "bitsandbytes", "torchao") if name in sys.modules}
    print(json.dumps(result))


if __name__ == "__main__":
    main()
