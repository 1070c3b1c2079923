#include "evaluate.h"

#include "llama.h"
#include "logits-file.h"

#include <algorithm>
#include <fstream>
#include <sstream>
#include <stdexcept>

namespace {

struct job {
    int seq;
    int pos;
};

std::string read_file(const std::string & path) {
    std::ifstream file(path, std::ios::binary);
    if (!file) {
        throw std::runtime_error("cannot read " + path);
    }
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
}

} // namespace

static std::vector<llama_tokens> cut(const llama_tokens & tokens, const evaluate_options & options) {
    std::vector<llama_tokens> sequences;
    for (int s = 0; s < options.n_sequences; s++) {
        const size_t first = (size_t) s*options.n_tokens/4;
        if (first + options.n_tokens > tokens.size()) {
            throw std::runtime_error("the text has " + std::to_string(tokens.size()) + " tokens, which is too short");
        }
        sequences.emplace_back(tokens.begin() + first, tokens.begin() + first + options.n_tokens);
    }
    return sequences;
}

static std::vector<std::vector<job>> plan(const evaluate_options & options, int n_batch) {
    const int n_prompt = options.n_tokens - options.n_decode;

    std::vector<std::vector<job>> batches(1);
    for (int pos = 0; pos < options.n_tokens; pos++) {
        for (int seq = 0; seq < options.n_sequences; seq++) {
            const bool decoding = pos >= n_prompt && seq == 0;
            if ((int) batches.back().size() == n_batch || (decoding && !batches.back().empty())) {
                batches.emplace_back();
            }
            batches.back().push_back({ seq, pos });
        }
    }
    return batches;
}

void evaluate(common_params & params, const evaluate_options & options) {
    if (options.n_tokens < 1 || options.n_decode < 0 || options.n_decode > options.n_tokens || options.n_sequences < 1) {
        throw std::runtime_error("bad number of tokens or sequences");
    }
    params.warmup = false; // a warm-up would only cost time

    common_init_result_ptr init = common_init_from_params(params);
    llama_context * ctx = init->context();
    if (!ctx) {
        throw std::runtime_error("cannot load " + params.model.path);
    }
    const llama_vocab * vocab   = llama_model_get_vocab(init->model());
    const int           n_vocab = llama_vocab_n_tokens(vocab);

    const llama_tokens tokens    = common_tokenize(vocab, read_file(options.text), true, false);
    const auto         sequences = cut(tokens, options);

    const int n_batch = std::min<int>(params.n_batch, llama_n_batch(ctx));
    llama_batch batch = llama_batch_init(n_batch, 0, 1);

    logits_writer writer(options.out, n_vocab);
    for (const auto & jobs : plan(options, n_batch)) {
        common_batch_clear(batch);
        for (const auto & job : jobs) {
            common_batch_add(batch, sequences[job.seq][job.pos], job.pos, { job.seq }, true);
        }
        if (llama_decode(ctx, batch) != 0) {
            throw std::runtime_error("llama_decode failed");
        }
        for (size_t i = 0; i < jobs.size(); i++) {
            const auto & seq  = sequences[jobs[i].seq];
            const size_t next = jobs[i].pos + 1;
            writer.write({ jobs[i].seq, jobs[i].pos, seq[jobs[i].pos], next < seq.size() ? seq[next] : -1 },
                         llama_get_logits_ith(ctx, i));
        }
    }
    writer.close();
    llama_batch_free(batch);
}
