"""Language models as methods, through any OpenAI-compatible server.

    template -> prompts -> model (asked once, kept) -> answers -> sentences -> drafts

`method.LanguageModelMethod` is what the rest of the library uses.
"""
