# libFuzzer targets: quire_fuzzer(name room...), one line each.
