"""SGLang's arithmetic: defaults, bytes a token, pools and what they leave. Rules read in the wheels 0.4.0 to 0.5.23."""
