"""A tiny untrained Llama with a chat template: python make_model.py FOLDER.

Ten digits, so that an answer of eight tokens holds a given digit about half of the time. Heads of
32, the smallest that vLLM's attention on a CPU has.
"""

import sys
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

WORDS = ["<pad>", "<end>", "<unk>", *map(str, range(10))]
folder = Path(sys.argv[1])

made = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="<unk>"))
made.pre_tokenizer = pre_tokenizers.Split("", "isolated")
made.decoder = decoders.Fuse()
tokenizer = PreTrainedTokenizerFast(
    tokenizer_object=made, pad_token="<pad>", eos_token="<end>", unk_token="<unk>",
    chat_template="{% for message in messages %}{{ message.content }}{% endfor %}",
)
torch.manual_seed(0)
model = LlamaForCausalLM(LlamaConfig(
    vocab_size=len(WORDS), hidden_size=64, intermediate_size=128, num_hidden_layers=2,
    num_attention_heads=2, num_key_value_heads=2, head_dim=32, max_position_embeddings=64,
    pad_token_id=0, eos_token_id=1, bos_token_id=None, tie_word_embeddings=False,
))
model.save_pretrained(folder)
tokenizer.save_pretrained(folder)
