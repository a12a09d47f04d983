// The bytes that the interoperability tests send, so that both ends can name them without a file.
//
// stream(seed):  the outputs of SplitMix64 started at `seed`, each written as 8 bytes little-endian;
//                a length that is not a multiple of 8 cuts the last word.
// message(i, n): n bytes: i as 8 bytes little-endian, then stream(i); n < 8 keeps the low bytes of i.

#ifndef FARHAUL_INTEROP_PATTERN_HPP
#define FARHAUL_INTEROP_PATTERN_HPP

#include <cstddef>
#include <cstdint>
#include <vector>

class PatternStream {
public:
    explicit PatternStream(uint64_t seed) : state_(seed) {}

    // Writes the next n bytes of the stream; calls may cut it anywhere.
    void fill(unsigned char* out, size_t n) {
        for (size_t i = 0; i < n; i++) {
            if (left_ == 0) {
                word_ = next();
                left_ = 8;
            }
            out[i] = static_cast<unsigned char>(word_);
            word_ >>= 8;
            left_--;
        }
    }

private:
    uint64_t next() {
        state_ += 0x9E3779B97F4A7C15u;
        uint64_t z = state_;
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
        z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
        return z ^ (z >> 31);
    }

    uint64_t state_;
    uint64_t word_ = 0;
    int left_ = 0;
};

inline std::vector<unsigned char> pattern_message(uint64_t index, size_t length) {
    std::vector<unsigned char> message(length);
    for (size_t i = 0; i < length && i < 8; i++)
        message[i] = static_cast<unsigned char>(index >> (8 * i));
    if (length > 8) PatternStream(index).fill(message.data() + 8, length - 8);
    return message;
}

// The index a message claims: its first 8 bytes, fewer if it is shorter.
inline uint64_t pattern_index(const unsigned char* message, size_t length) {
    uint64_t index = 0;
    for (size_t i = 0; i < length && i < 8; i++) index |= static_cast<uint64_t>(message[i]) << (8 * i);
    return index;
}

#endif
