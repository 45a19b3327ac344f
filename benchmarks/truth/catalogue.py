"""The architectures of a sample: what they are called, of which class, and who makes them."""

from dataclasses import dataclass
from typing import Final

TABLE: Final[dict[tuple[str, str], str]] = {
    ("decoder", "AutoModelForCausalLM"): """
        apertus arcee biogpt bitnet bloom codegen cohere cohere2 cpmant ctrl cwm diffllama doge emu3
        ernie4_5 exaone4 falcon gemma gemma2 gemma3_text gemma3n_text gemma4_text glm glm4 gpt2 gpt_bigcode
        gpt_neo gpt_neox gpt_neox_japanese gptj granite granite_swa helium hrm_text hunyuan_v1_dense
        hyperclovax internlm3 iquestcoder jais2 llama minicpm3 ministral ministral3 mistral
        modernbert-decoder mpt nanochat nemotron olmo olmo2 olmo3 openai-gpt opt persimmon phi phi3 qwen2
        qwen3 seed_oss smollm3 stablelm starcoder2 trocr vaultgemma xglm youtu xlnet
    """,
    ("mixture of experts", "AutoModelForCausalLM"): """
        afmoe aria_text axk1 bailing_hybrid cohere2_moe dbrx deepseek_v2 deepseek_v3 deepseek_v32
        deepseek_v4 dots1 ernie4_5_moe exaone_moe flex_olmo glm4_moe glm4_moe_lite glm_moe_dsa gpt_oss
        granitemoe granitemoe_swa granitemoeshared hunyuan_v1_moe hy_v3 jetmoe laguna lfm2_moe llama4_text
        longcat_flash mellum mimo_v2_flash minimax minimax_m2 mixtral olmoe phimoe qwen2_moe qwen3_moe
        solar_open zaya
    """,
    ("state space", "AutoModelForCausalLM"): """
        bamba falcon_h1 falcon_mamba granitemoehybrid jamba kimi_linear lfm2 mamba mamba2 nemotron_h
        olmo_hybrid qwen3_5_text qwen3_5_moe_text qwen3_next recurrent_gemma rwkv xlstm zamba zamba2
    """,
    ("encoder", "AutoModelForMaskedLM"): """
        albert bert big_bird camembert convbert data2vec-text deberta deberta-v2 distilbert electra ernie
        esm eurobert flaubert fnet funnel gte ibert layoutlm longformer luke megatron-bert mobilebert
        modernbert mpnet mra nomic_bert nystromformer rembert roberta roberta-prelayernorm roc_bert roformer
        squeezebert tapas xlm xlm-roberta xlm-roberta-xl xmod yoso
    """,
    ("encoder", "AutoModel"): """
        canine lilt markuplm dpr bridgetower splinter
    """,
    ("encoder-decoder", "AutoModelForSeq2SeqLM"): """
        bart bigbird_pegasus blenderbot blenderbot-small fsmt led longt5 m2m_100 marian mbart mt5 mvp
        nllb-moe pegasus pegasus_x plbart prophetnet switch_transformers t5 t5gemma umt5
    """,
    ("vision", "AutoModelForImageClassification"): """
        beit bit convnext convnextv2 cvt data2vec-vision deit dinov2 dinov2_with_registers donut-swin
        efficientnet focalnet hgnet_v2 hiera ijepa levit mobilenet_v1 mobilenet_v2 mobilevit mobilevitv2
        poolformer pp_lcnet pvt pvt_v2 regnet resnet segformer swiftformer swin swinv2 textnet vit vit_msn
    """,
    ("vision", "AutoModel"): """
        clip_vision_model siglip_vision_model dinov3_vit dinov3_convnext vit_mae dpt glpn yolos swin2sr
    """,
    ("audio", "AutoModelForCTC"): """
        data2vec-audio hubert sew sew-d unispeech unispeech-sat wav2vec2 wav2vec2-bert wav2vec2-conformer
        wavlm parakeet_ctc
    """,
    ("audio", "AutoModelForAudioClassification"): """
        audio-spectrogram-transformer
    """,
    ("audio", "AutoModelForSpeechSeq2Seq"): """
        whisper speech_to_text moonshine
    """,
    ("series", "AutoModel"): """
        patchtst patchtsmixer autoformer informer time_series_transformer
    """,
    ("diffusion and others", "custom"): """
        lstm gru gnn unet dit vae mlp_mixer convnet torch_encoder
    """,
}


@dataclass(frozen=True)
class Architecture:
    """What is known of an architecture before it is built."""

    name: str
    kind: str
    maker: str

    @property
    def generates(self) -> bool:
        """Whether it can go on word by word, with a cache."""
        return self.maker == "AutoModelForCausalLM"


def architectures() -> dict[str, Architecture]:
    """Return all architectures by name."""
    return {
        name: Architecture(name, kind, maker)
        for (kind, maker), names in TABLE.items()
        for name in names.split()
    }
