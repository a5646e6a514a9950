"""The models of small_engine.py, for tests that must not import vLLM's engine into their own process."""

MODELS = ["llama", "qwen3", "gemma2", "gpt_oss", "bloom", "bert", "whisper"]
MODELS += ["deepseek_v3", "deepseek_v32", "glm_moe_dsa"]
