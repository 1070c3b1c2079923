#pragma once

#include "common.h"

#include <string>

struct evaluate_options {
    std::string text;               // file with the text
    std::string out;                // file or pipe for the logits
    int         n_tokens       = 0; // of each sequence, the decoded ones too
    int         n_decode       = 0; // of these, the last ones, evaluated one at a time
    int         n_sequences    = 1;
};

// Evaluates the text and writes the logits of every token. Sequence s gets the tokens that begin
// at s*n_tokens/4 of the text, so sequences overlap but are never the same.
// Prompts are fed in batches of params.n_batch in which the sequences alternate.
void evaluate(common_params & params, const evaluate_options & options);
