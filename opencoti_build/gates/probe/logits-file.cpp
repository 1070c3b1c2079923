#include "logits-file.h"

#include <cerrno>
#include <cstring>
#include <stdexcept>

static const char     magic[8] = { 'O', 'C', 'L', 'O', 'G', 'I', 'T', 'S' };
static const uint32_t format   = 1;

static FILE * open_file(const std::string & path, const char * mode) {
    FILE * file = fopen(path.c_str(), mode);
    if (!file) {
        throw std::runtime_error("cannot open " + path + ": " + strerror(errno));
    }
    return file;
}

logits_writer::logits_writer(const std::string & path, uint32_t n_vocab) : file(open_file(path, "wb")), n_vocab(n_vocab) {
    put(magic, sizeof(magic));
    put(&format, sizeof(format));
    put(&n_vocab, sizeof(n_vocab));
}

logits_writer::~logits_writer() {
    if (file) {
        fclose(file);
    }
}

void logits_writer::put(const void * data, size_t size) {
    if (fwrite(data, 1, size, file) != size) {
        throw std::runtime_error(std::string("cannot write the logits: ") + strerror(errno));
    }
}

void logits_writer::write(const logits_row & row, const float * logits) {
    put(&row, sizeof(row));
    put(logits, sizeof(float)*n_vocab);
}

void logits_writer::close() {
    FILE * closing = file;
    file = nullptr;
    if (fclose(closing) != 0) {
        throw std::runtime_error(std::string("cannot write the logits: ") + strerror(errno));
    }
}

logits_reader::logits_reader(const std::string & path) : file(open_file(path, "rb")) {
    char     found[8];
    uint32_t version = 0;
    if (fread(found, 1, sizeof(found), file) != sizeof(found) || memcmp(found, magic, sizeof(magic)) != 0 ||
        fread(&version, sizeof(version), 1, file) != 1 || version != format ||
        fread(&n_vocab, sizeof(n_vocab), 1, file) != 1 || n_vocab == 0) {
        fclose(file);
        throw std::runtime_error(path + " is not a file of logits");
    }
}

logits_reader::~logits_reader() {
    fclose(file);
}

bool logits_reader::next(logits_row & row, std::vector<float> & logits) {
    logits.resize(n_vocab);
    const size_t got = fread(&row, 1, sizeof(row), file);
    if (got == 0 && feof(file)) {
        return false;
    }
    if (got != sizeof(row) || fread(logits.data(), sizeof(float), n_vocab, file) != n_vocab) {
        throw std::runtime_error("the file of logits ends inside a row");
    }
    return true;
}
