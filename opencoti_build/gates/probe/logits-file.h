#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

// A stream of logits, little-endian:
//
//   8 bytes "OCLOGITS", u32 format (1), u32 n_vocab
//   for each evaluated token, in the order of evaluation:
//     i32 sequence, i32 position, i32 token, i32 next token of the sequence (-1: none), n_vocab f32
//
// It ends where it ends: a reader takes a part of a row as an error.

struct logits_row {
    int32_t seq;
    int32_t pos;
    int32_t token;
    int32_t next;
};

class logits_writer {
public:
    logits_writer(const std::string & path, uint32_t n_vocab);
    ~logits_writer();

    void write(const logits_row & row, const float * logits);

    // throws when the last bytes could not be written
    void close();

private:
    void put(const void * data, size_t size);

    FILE *   file;
    uint32_t n_vocab;
};

class logits_reader {
public:
    explicit logits_reader(const std::string & path);
    ~logits_reader();

    // false at the end of the file
    bool next(logits_row & row, std::vector<float> & logits);

    uint32_t n_vocab = 0;

private:
    FILE * file;
};
