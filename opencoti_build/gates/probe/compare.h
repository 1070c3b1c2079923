#pragma once

#include <string>

// The difference of two files of logits as one line of JSON. The first is the reference:
// the divergence is KL(reference || other), in nats.
std::string compare(const std::string & reference, const std::string & other);
