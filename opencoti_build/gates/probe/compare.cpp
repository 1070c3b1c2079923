#include "compare.h"

#include "logits-file.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <stdexcept>

namespace {

// what the softmax of one row needs, in double: differences of tiny divergences must not be lost
struct softmax {
    const std::vector<float> & x;
    int    top;     // the most likely token
    double log_sum; // of the exponentials

    explicit softmax(const std::vector<float> & x) : x(x) {
        top = (int) (std::max_element(x.begin(), x.end()) - x.begin());
        double sum = 0.0;
        for (const float v : x) {
            sum += std::exp((double) v - x[top]);
        }
        log_sum = x[top] + std::log(sum);
    }

    double log_p(int i) const { return x[i] - log_sum; }
};

struct totals {
    size_t n_rows        = 0;
    size_t n_identical   = 0; // rows whose bytes are the same
    size_t n_same_top    = 0;
    size_t n_scored      = 0; // rows with a next token
    double max_delta     = 0.0;
    double nll_reference = 0.0;
    double nll_other     = 0.0;
    std::vector<double> kld;
    std::string first_difference = "null";
};

} // namespace

static double divergence(const softmax & p, const softmax & q) {
    double sum = 0.0;
    for (size_t i = 0; i < p.x.size(); i++) {
        const double log_p = p.log_p(i);
        // a token ruled out by both (-inf) adds nothing
        if (log_p > -700.0) {
            sum += std::exp(log_p)*(log_p - q.log_p(i));
        }
    }
    return std::max(sum, 0.0); // rounding
}

static void add_row(totals & t, const logits_row & row, const std::vector<float> & a, const std::vector<float> & b) {
    t.n_rows++;
    if (memcmp(a.data(), b.data(), a.size()*sizeof(float)) == 0) {
        t.n_identical++;
    } else if (t.first_difference == "null") {
        t.first_difference = "{\"sequence\": " + std::to_string(row.seq) + ", \"position\": " + std::to_string(row.pos) + "}";
    }
    for (size_t i = 0; i < a.size(); i++) {
        const double delta = a[i] == b[i] ? 0.0 : std::fabs((double) a[i] - b[i]);
        if (!(delta <= t.max_delta)) { // also when it is NaN
            t.max_delta = delta;
        }
    }
    const softmax p(a);
    const softmax q(b);
    t.kld.push_back(divergence(p, q));
    t.n_same_top += p.top == q.top;
    if (row.next >= 0) {
        t.n_scored++;
        t.nll_reference -= p.log_p(row.next);
        t.nll_other     -= q.log_p(row.next);
    }
}

// JSON has no NaN and no infinity
static std::string number(double x) {
    if (!std::isfinite(x)) {
        return "null";
    }
    char buf[64];
    snprintf(buf, sizeof(buf), "%.9g", x);
    return buf;
}

static double quantile(std::vector<double> sorted, double q) {
    for (const double x : sorted) {
        if (std::isnan(x)) {
            return std::numeric_limits<double>::quiet_NaN();
        }
    }
    std::sort(sorted.begin(), sorted.end());
    const double at   = q*(sorted.size() - 1);
    const size_t low  = (size_t) at;
    const size_t high = std::min(low + 1, sorted.size() - 1);
    return sorted[low] + (at - low)*(sorted[high] - sorted[low]);
}

static double mean(const std::vector<double> & values) {
    double sum = 0.0;
    for (const double x : values) {
        sum += x;
    }
    return sum/values.size();
}

std::string compare(const std::string & reference, const std::string & other) {
    logits_reader ra(reference);
    logits_reader rb(other);
    if (ra.n_vocab != rb.n_vocab) {
        throw std::runtime_error("the vocabularies differ");
    }
    totals             t;
    logits_row         a = {};
    logits_row         b = {};
    std::vector<float> la;
    std::vector<float> lb;
    while (true) {
        const bool more = ra.next(a, la);
        if (more != rb.next(b, lb)) {
            throw std::runtime_error("one file has more tokens than the other");
        }
        if (!more) {
            break;
        }
        if (memcmp(&a, &b, sizeof(a)) != 0) {
            throw std::runtime_error("the files are not of the same tokens");
        }
        add_row(t, a, la, lb);
    }
    if (t.n_rows == 0 || t.n_scored == 0) {
        throw std::runtime_error("there is nothing to compare");
    }
    std::string out = "{";
    out += "\"tokens\": " + std::to_string(t.n_rows);
    out += ", \"identical\": " + std::to_string(t.n_identical);
    out += ", \"first_difference\": " + t.first_difference;
    out += ", \"max_delta\": " + number(t.max_delta);
    out += ", \"kld_mean\": " + number(mean(t.kld));
    out += ", \"kld_999\": " + number(quantile(t.kld, 0.999));
    out += ", \"kld_max\": " + number(quantile(t.kld, 1.0));
    out += ", \"same_top\": " + number((double) t.n_same_top/t.n_rows);
    out += ", \"ppl_reference\": " + number(std::exp(t.nll_reference/t.n_scored));
    out += ", \"ppl\": " + number(std::exp(t.nll_other/t.n_scored));
    return out + "}";
}
