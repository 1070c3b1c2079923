#include "arg.h"
#include "common.h"
#include "compare.h"
#include "evaluate.h"
#include "log.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <stdexcept>

// What the gates ask an engine tree, with the tree's own libraries:
//
//   opencoti-probe logits TEXT OUT TOKENS DECODED SEQUENCES ARGUMENT...
//       the logits of a text; the arguments are those of llama-server, so every feature's flag
//       works here as it does there
//   opencoti-probe compare REFERENCE OTHER
//       the difference of two such files, as JSON

static int number(const char * text) {
    char * end = nullptr;
    const long value = strtol(text, &end, 10);
    if (end == text || *end != '\0' || value < 0 || value > 1 << 20) {
        throw std::runtime_error(std::string("not a number: ") + text);
    }
    return (int) value;
}

static int run_logits(int argc, char ** argv) {
    evaluate_options options;
    options.text        = argv[2];
    options.out         = argv[3];
    options.n_tokens    = number(argv[4]);
    options.n_decode    = number(argv[5]);
    options.n_sequences = number(argv[6]);

    std::vector<char *> args = { argv[0] };
    args.insert(args.end(), argv + 7, argv + argc);

    common_params params;
    common_init();
    if (!common_params_parse((int) args.size(), args.data(), params, LLAMA_EXAMPLE_SERVER)) {
        return 1;
    }
    llama_backend_init();
    llama_numa_init(params.numa);
    params.n_parallel = options.n_sequences;
    evaluate(params, options);
    llama_backend_free();
    return 0;
}

int main(int argc, char ** argv) {
    try {
        if (argc >= 7 && strcmp(argv[1], "logits") == 0) {
            return run_logits(argc, argv);
        }
        if (argc == 4 && strcmp(argv[1], "compare") == 0) {
            printf("%s\n", compare(argv[2], argv[3]).c_str());
            return 0;
        }
        fprintf(stderr, "usage: %s logits TEXT OUT TOKENS DECODED SEQUENCES ARGUMENT...\n", argv[0]);
        fprintf(stderr, "       %s compare REFERENCE OTHER\n", argv[0]);
    } catch (const std::exception & e) {
        fprintf(stderr, "error: %s\n", e.what());
    }
    return 1;
}
