// What the live figures offer: distributions, truncation rules, the orders of engines. After the equals sign stands
// strict JSON, because Python reads this file too. Toys carry their logits; the others come from SmolLM2 and are kept in distributions.js.
(globalThis.nextToken ??= {}).catalogue = {
  "sources": [
    { "name": "toy", "label": "toy: three tokens", "tokens": ["␣cat", "␣dog", "␣fish"], "logits": [2.0, 1.0, 0.5] },
    { "name": "toy-five", "label": "toy: five tokens",
      "tokens": ["␣the", "␣a", "␣my", "␣one", "␣zebra"], "logits": [2.15, 1.4, 0.85, 0.1, -1.7] },
    { "name": "toy-three", "label": "toy: logits 3, 2, 1", "tokens": ["␣one", "␣two", "␣three"], "logits": [3.0, 2.0, 1.0] },
    { "name": "toy-sure", "label": "toy: one at .95, ten at .005",
      "tokens": ["␣yes", "␣no", "␣maybe", "␣never", "␣often", "␣once", "␣soon", "␣now", "␣then", "␣here", "␣there"],
      "logits": [5.247024072160486, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0] },
    { "name": "toy-loop", "label": "toy: the cat the cat the…", "tokens": ["␣the", "␣cat", "␣sat", "␣on", "␣mat"],
      "logits": [-1.0, 2.0, 0.5, -0.5, 1.5], "history": [0, 1, 2, 3, 0, 1, 0, 1, 0], "prompt_length": 4 },
    { "name": "capital", "label": "The capital of France is…", "prompt": "The capital of France is" },
    { "name": "once", "label": "Once upon a time there was a…", "prompt": "Once upon a time there was a" },
    { "name": "sum", "label": "2 + 2 =…", "prompt": "2 + 2 =" },
    { "name": "json", "label": "{\"name\": \"Ada\", \"age\":…", "prompt": "{\"name\": \"Ada\", \"age\":" },
    { "name": "code", "label": "for i in range(…", "prompt": "for i in range(" },
    { "name": "chat", "label": "Chat: Tell me a joke.", "question": "Tell me a joke." },
    { "name": "loop", "label": "To be or not to be, … (it loops)", "prompt_length": 7,
      "prompt": "To be or not to be, but it is the only thing that will ever be.\n\nThis is the ultimate truth, and it is the only thing that will ever be. It is the only thing that will ever be. It is the only thing that will" },
    { "name": "script", "label": "Alice: Hello! … Bob…", "prompt_length": 34,
      "prompt": "Alice: Hello!\nBob: Hello!\nAlice: How are you?\nBob: Fine. And you?\nAlice: Fine, thank you.\nBob" },
    { "name": "records", "label": "[{\"name\": \"Ada\", \"age\": 36}, …", "prompt_length": 37,
      "prompt": "[{\"name\": \"Ada\", \"age\": 36}, {\"name\": \"Alan\", \"age\": 41}, {\"name\": \"Grace\", \"" }
  ],
  "methods": [
    { "name": "top-k", "setting": "top_k", "label": "top-k", "knob": "count k", "symbol": "k", "unit": "",
      "low": 1, "high": 49152, "scale": "count", "start": 40 },
    { "name": "top-p", "setting": "top_p", "label": "top-p", "knob": "mass p", "symbol": "p", "unit": "",
      "low": 0.01, "high": 1, "scale": "share", "start": 0.9 },
    { "name": "min-p", "setting": "min_p", "label": "min-p", "knob": "share min p", "symbol": "min p", "unit": "",
      "low": 0.001, "high": 1, "scale": "log", "start": 0.1 },
    { "name": "typical", "setting": "typical_p", "label": "typical", "knob": "mass τ", "symbol": "τ", "unit": "",
      "low": 0.01, "high": 1, "scale": "share", "start": 0.9 },
    { "name": "epsilon", "setting": "epsilon", "label": "epsilon", "knob": "floor ε", "symbol": "ε", "unit": "",
      "low": 0.00001, "high": 0.5, "scale": "log", "start": 0.0006 },
    { "name": "eta", "setting": "eta", "label": "eta", "knob": "floor ε", "symbol": "ε", "unit": "",
      "low": 0.00001, "high": 0.5, "scale": "log", "start": 0.002 },
    { "name": "top-n-sigma", "setting": "top_n_sigma", "label": "top-nσ", "knob": "distance n", "symbol": "n", "unit": "σ",
      "low": 0.1, "high": 5, "scale": "tenths", "start": 1 }
  ],
  "orders": [
    { "name": "huggingface", "label": "transformers",
      "rules": ["repetition_penalty", "frequency_penalty", "presence_penalty", "no_repeat_ngram_size", "temperature",
                "top_k", "top_p", "min_p", "typical_p", "epsilon", "eta", "top_n_sigma"] },
    { "name": "vllm", "label": "vLLM",
      "rules": ["repetition_penalty", "frequency_penalty", "presence_penalty", "temperature", "min_p", "top_k", "top_p"] },
    { "name": "llama.cpp", "label": "llama.cpp",
      "rules": ["repetition_penalty", "frequency_penalty", "presence_penalty", "top_n_sigma", "top_k", "typical_p",
                "top_p", "min_p", "temperature"] }
  ]
};
