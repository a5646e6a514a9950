"""The model types of transformers 5.23.0 that test_every_model.py does not run, that fa refuses, or that get a warning.
All types in a list have the same reason, which the comment of the list gives.

The lists of types that are not run can only become shorter, because the test fails if such a type runs.
"""

# Not run: the code of these models imports a package that the tests do not install.
NEEDS = {
    "edgetam": "PIL",
    "edgetam_vision_model": "PIL",
    "fast_vlm": "PIL",
    "gemma3n": "PIL",
    "gemma3n_vision": "PIL",
    "pe_audio_video": "PIL",
    "pe_audio_video_encoder": "PIL",
    "pe_video": "PIL",
    "pe_video_encoder": "PIL",
    "perception_lm": "PIL",
    "timm_wrapper": "PIL",
    "layoutlmv2": "detectron2",
    "dinat": "natten",
    "inkling_mm_model": "scipy",
    "conditional_detr": "timm",
    "dab-detr": "timm",
    "deformable_detr": "timm",
    "detr": "timm",
    "omdet-turbo": "timm",
    "table-transformer": "timm",
    "timm_backbone": "timm",
    "higgs_audio_v2_tokenizer": "torchaudio",
}

# Not run: even made small, these models have more than 20 million parameters, mostly in convolutions, whose sizes
# small_models.py does not change.
_TOO_LARGE = """
    align bit blt convnext convnextv2 deimv2 dinov3_convnext dots3_note_text edgetam_video efficientnet
    fastspeech2_conformer_with_hifigan florence2 hiera janus neucodec pe_audio pe_audio_encoder perceiver
    pp_doclayout_v3 pp_doclayout_v4 resnet rt_detr rt_detr_v2 sam2 sam2_hiera_det_model sam2_video
    sam2_vision_model tvp vibevoice vibevoice_acoustic_tokenizer vibevoice_acoustic_tokenizer_decoder
    vibevoice_acoustic_tokenizer_encoder vibevoice_asr xcodec2
""".split()

# Not run: the default configuration is incomplete, or the sizes that small_models.py sets do not fit together.
_SIZES_DO_NOT_FIT = """
    autoformer chameleon csm d_fine dbrx deepseek_ocr2 depth_pro diffusion_gemma dots3_note efficientloftr
    ernie4_5_vl_moe esm esmc evolla fun_asr_nano gemma4_assistant gemma4_unified_assistant gradium_phonon_tts
    granite4_vision informer kyutai_speech_to_text lw_detr maskformer mimi mimi_decoder molmo2 moonshine_streaming
    musicgen musicgen_melody pocket_tts pocket_tts_audio_tokenizer pocket_tts_audio_tokenizer_decoder
    pp_ocrv6_medium_det qwen3_asr t5gemma2_encoder time_series_transformer voxtral_realtime_text
""".split()

# Not run: these models take inputs other than ids, images, videos, patches or sound, or take them in other shapes.
_OTHER_INPUTS = """
    audio-spectrogram-transformer audioflamingo3_encoder bark blip-2 blip_2_qformer bros clap clvp cpmant dac
    decision_transformer dia embedding_gemma2 encodec fastspeech2_conformer fun_asr_nano_encoder gemma3n_audio
    gemma4_audio gemma4_vision glm4v_moe_text glm_image glm_image_vqmodel granite_speech5_ctc
    granite_speech5_encoder grounding-dino hgnet_v2 higgs_audio_v2 hunyuan_vl hunyuan_vl_text idefics
    inkling2_vision instructblip instructblipvideo kimi_k25_vision kosmos-2 layoutlmv3 levit lightglue lilt lxmert
    mask2former mgp-str mimi_encoder minicpm_ocr_vision minicpmv4_7_vision mm-grounding-dino mobilebert
    mobilevitv2 modernvbert moonshine moss_transcribe_diarize_audio muse_glimmer_assistant muse_glimmer_vision
    muse_spark_audio muse_spark_vision nemotron3_5_transcribe_asr_audio nemotron3_5_transcribe_audio
    nemotron3_5_transcribe_word_timestamp nemotron3_diarization nemotron3_diarization_audio neomme oneformer
    patchtsmixer patchtst pi0 pix2struct pocket_tts_audio_tokenizer_encoder pp_ocrv5_mobile_rec
    pp_ocrv5_server_rec pp_ocrv6_small_det pp_ocrv6_small_rec pp_ocrv6_tiny_rec qwen2_5_omni_thinker
    qwen2_5_vl_text qwen2_audio_encoder qwen2_vl_text qwen3_asr_encoder qwen3_omni_moe_thinker rf_detr sam
    sam3_lite_text_text_model sam3_tracker sam3_tracker_video sam3_video sam_hq sapiens2 seggpt siglip2
    siglip2_vision_model speech-encoder-decoder speecht5 step3p7 timesfm timesfm2_5 udop ultravbert unlimited_ocr
    uvdoc video_llama_3_vision videoprism vision-text-dual-encoder vits vjepa2 voxtral_encoder voxtral_realtime
    xcodec xlstm
""".split()

# Not run: the results of "eager" for these inputs are NaN.
_NAN = """
    nemotron3_5_asr nemotron_asr_streaming nemotron_asr_streaming_encoder
""".split()

LISTED = {*NEEDS, *_TOO_LARGE, *_SIZES_DO_NOT_FIT, *_OTHER_INPUTS, *_NAN}

# Refused by fa: the classes of these models have _supports_sdpa and _supports_attention_backend False.
_OWN_ATTENTION = """
    big_bird bigbird_pegasus blip bloom bridgetower canine codegen convbert cvt deberta deberta-v2 donut-swin
    falcon_mamba flaubert flava fnet focalnet fsmt funnel git glpn gpt_neo gpt_neox_japanese gptj groupvit ibert
    imagegpt inkling2 inkling2_text led longformer longt5 luke mamba mamba2 markuplm maskformer-swin megatron-bert
    mobilenet_v1 mobilenet_v2 mobilevit mpnet mpt mra mvp nllb-moe nystromformer openai-gpt pegasus_x poolformer
    prophetnet pvt pvt_v2 reformer regnet rembert roformer rwkv sew-d speech_to_text splinter squeezebert
    swiftformer swin2sr swinv2 switch_transformers tapas textnet timesformer trocr univnet vilt visual_bert vitdet
    wavlm xglm xlm xlnet yoso
""".split()

# Refused by fa: these models choose their attention by class, not by the name of an attention function.
_BY_CLASS = """
    data2vec-vision falcon
""".split()

REFUSED_BY = dict.fromkeys(_OWN_ATTENTION + _BY_CLASS, 'does not take attn_implementation="fa"')

# Equal to "eager", because these models never call an attention function. Each of them gives a warning.
WARNED = """
    sam_hq_vision_model sam_vision_model
""".split()
