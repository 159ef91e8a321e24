// The safetensors reader and writer: every rule of the format with its message, every dtype.
#include "io/safetensors.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "errors.h"
#include "io/json.h"
#include "io/text.h"
#include "io/writer.h"
#include "test_folder.h"
#include "tilekernels/error.h"

namespace tilekernels::io {
namespace {

struct Malformed {
  const char* name;
  std::string header;
  int64_t data_bytes;
  const char* message;
};

// One tensor "a" with the given JSON for its fields.
std::string one(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return R"({"a":{"dtype":)" + dtype + R"(,"shape":)" + shape + R"(,"data_offsets":)" + offsets +
         "}}";
}

std::string nested_arrays(int depth) {
  return "{\"a\":{\"shape\":" + std::string(static_cast<size_t>(depth), '[');
}

const Malformed kMalformed[] = {
    {"empty", "", 0, "f: the header must begin with {, got an empty header"},
    {"array", "[]", 0, "f: the header must begin with {, got \"[\""},
    {"space_first", " {}", 0, "f: the header must begin with {, got \" \""},
    {"cut", "{\"a\":", 0, "f: the header must be valid JSON in UTF-8, got an error at byte"},
    {"nul_after", std::string("{}\0\0", 4), 0,
     "f: the header must be valid JSON in UTF-8, got a NUL at byte 2 of the header"},
    {"two_values", "{} {}", 0, "f: the header must be valid JSON in UTF-8, got an error at byte"},
    {"not_utf8", "{\"a\xff\":{}}", 0,
     "f: the header must be valid JSON in UTF-8, got an error at byte"},
    {"number_for_tensor", R"({"a":1})", 0, "f: \"a\": must be an object, got 1"},
    {"array_for_tensor", R"({"a":[]})", 0, "f: \"a\": must be an object, got an array"},
    {"deep", nested_arrays(100000), 0,
     "tensor \"a\": extents must be whole numbers from 0 to 2^63 - 1, got an array"},
    {"object_in_tensor", R"({"a":{"dtype":{}}})", 0,
     "tensor \"a\": dtype must be a string, got an object"},
    {"repeated_tensor", R"({"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},"a":{}})", 0,
     "f: names of tensors must differ, got \"a\" twice"},
    {"repeated_field", R"({"a":{"dtype":"U8","dtype":"U8"}})", 0,
     "tensor \"a\": keys must differ, got \"dtype\" twice"},
    {"unknown_field", R"({"a":{"stride":[1]}})", 0,
     "tensor \"a\": keys must be dtype, shape and data_offsets, got \"stride\""},
    {"missing_dtype", R"({"a":{"shape":[],"data_offsets":[0,0]}})", 0,
     "tensor \"a\": dtype must be given, got none"},
    {"missing_shape", R"({"a":{"dtype":"U8","data_offsets":[0,0]}})", 0,
     "tensor \"a\": shape must be given, got none"},
    {"missing_offsets", R"({"a":{"dtype":"U8","shape":[0]}})", 0,
     "tensor \"a\": data_offsets must be given, got none"},
    {"unknown_dtype", one("\"F7\"", "[1]", "[0,1]"), 1,
     "tensor \"a\": dtype must be one of the format's names, got \"F7\""},
    {"dtype_number", one("8", "[1]", "[0,1]"), 1, "tensor \"a\": dtype must be a string, got 8"},
    {"shape_string", one("\"U8\"", "\"1\"", "[0,1]"), 1,
     "tensor \"a\": shape must be an array of numbers, got \"1\""},
    {"extent_negative", one("\"U8\"", "[-1]", "[0,1]"), 1,
     "tensor \"a\": extents must be whole numbers from 0 to 2^63 - 1, got -1"},
    {"extent_float", one("\"U8\"", "[1.5]", "[0,1]"), 1,
     "tensor \"a\": extents must be whole numbers from 0 to 2^63 - 1, got 1.5"},
    {"extent_exponent", one("\"U8\"", "[1e0]", "[0,1]"), 1,
     "tensor \"a\": extents must be whole numbers from 0 to 2^63 - 1, got 1e0"},
    {"extent_too_large", one("\"U8\"", "[9223372036854775808]", "[0,1]"), 1,
     "tensor \"a\": extents must be whole numbers from 0 to 2^63 - 1, got 9223372036854775808"},
    {"extent_null", one("\"U8\"", "[null]", "[0,1]"), 1,
     "tensor \"a\": extents must be whole numbers from 0 to 2^63 - 1, got null"},
    {"product_wraps", one("\"U8\"", "[4294967296,4294967296]", "[0,0]"), 0,
     "tensor \"a\": the number of elements must be below 2^63, got [4294967296, 4294967296]"},
    {"product_wraps_beside_zero", one("\"U8\"", "[0,4294967296,4294967296]", "[0,0]"), 0,
     "tensor \"a\": the number of elements must be below 2^63"},
    {"bits_wrap", one("\"U64\"", "[4611686018427387904]", "[0,0]"), 0,
     "tensor \"a\": the size must be below 2^63 bits, got [4611686018427387904]"},
    {"rank",
     one("\"U8\"", "[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]", "[0,1]"),
     1, "tensor \"a\": the rank must be at most 32, got more"},
    {"offsets_one", one("\"U8\"", "[1]", "[0]"), 1,
     "tensor \"a\": data_offsets must be two numbers, got 1"},
    {"offsets_three", one("\"U8\"", "[1]", "[0,1,2]"), 1,
     "tensor \"a\": data_offsets must be two numbers, got more"},
    {"offsets_object", one("\"U8\"", "[1]", "{}"), 1,
     "tensor \"a\": data_offsets must be an array of two numbers, got an object"},
    {"offsets_negative", one("\"U8\"", "[1]", "[-1,0]"), 1,
     "tensor \"a\": data_offsets must be whole numbers from 0 to 2^63 - 1, got -1"},
    {"offsets_float", one("\"U8\"", "[1]", "[0,1.0]"), 1,
     "tensor \"a\": data_offsets must be whole numbers from 0 to 2^63 - 1, got 1.0"},
    {"offsets_backwards", one("\"U8\"", "[1]", "[1,0]"), 1,
     "tensor \"a\": data_offsets must not run backwards, got [1, 0]"},
    {"size_mismatch", one("\"F32\"", "[2,3]", "[0,23]"), 23,
     "tensor \"a\": data_offsets must span the 24 bytes of F32 [2, 3], got [0, 23] of 23"},
    {"f4_odd_width", one("\"F4\"", "[2,3]", "[0,3]"), 3,
     "tensor \"a\": F4 holds two elements a byte, so the last dimension must be even, got [2, 3]"},
    {"f4_scalar", one("\"F4\"", "[]", "[0,1]"), 1,
     "tensor \"a\": F4 holds two elements a byte, so the last dimension must be even, got []"},
    {"f6_partial_byte", one("\"F6_E2M3\"", "[2]", "[0,2]"), 2,
     "tensor \"a\": F6_E2M3 elements must fill whole bytes, got [2] of 12 bits"},
    {"out_of_file", one("\"U8\"", "[9]", "[0,9]"), 8,
     "tensor \"a\": data_offsets must lie within the file's 8 bytes of data, got [0, 9]"},
    {"trailing", one("\"U8\"", "[8]", "[0,8]"), 9,
     "f: the file must end with its last tensor's data, got 1 byte more"},
    {"gap_at_start", one("\"U8\"", "[1]", "[1,2]"), 2,
     "tensor \"a\": data must follow its predecessor's without a gap, at 0, got [1, 2]"},
    {"gap",
     R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
     R"("b":{"dtype":"U8","shape":[1],"data_offsets":[2,3]}})",
     3, "tensor \"b\": data must follow its predecessor's without a gap, at 1, got [2, 3]"},
    {"overlap",
     R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
     R"("b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})",
     3, "tensor \"b\": data must not overlap tensor \"a\", which ends at 2, got [1, 3]"},
    {"same_bytes_twice",
     R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
     R"("b":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})",
     2, "tensor \"b\": data must not overlap tensor \"a\", which ends at 2, got [0, 2]"},
    {"name_nul", R"({"a\u0000b":{}})", 0,
     "tensor \"a\\x00b\": the name must hold no control characters, got byte 0"},
    {"name_newline", R"({"a\nb":{}})", 0,
     "tensor \"a\\x0ab\": the name must hold no control characters, got byte 10"},
    {"name_empty", R"({"":{}})", 0, "tensor \"\": the name must not be empty, got an empty name"},
    {"name_long", "{\"" + std::string(1025, 'n') + "\":{}}", 0,
     "the name must have at most 1024 bytes, got 1025"},
    {"metadata_number", R"({"__metadata__":{"k":1}})", 0,
     "f: __metadata__ \"k\": metadata must be strings, got 1"},
    {"metadata_object", R"({"__metadata__":{"k":{}}})", 0,
     "f: __metadata__ \"k\": metadata must be strings, got an object"},
    {"metadata_string", R"({"__metadata__":"x"})", 0,
     "f: \"__metadata__\": must be an object, got \"x\""},
    {"metadata_repeated", R"({"__metadata__":{"k":"1","k":"2"}})", 0,
     "f: __metadata__: keys must differ, got \"k\" twice"},
};

TEST(Header, RefusesEveryMalformedHeaderWithItsOwnMessage) {
  for (const Malformed& row : kMalformed) {
    SCOPED_TRACE(row.name);
    const std::string what =
        error_of<DataError>([&] { parse_header(row.header, row.data_bytes, "f"); });
    EXPECT_EQ(what.rfind("[checkpoint] f: ", 0), 0u) << what;
    EXPECT_NE(what.find(row.message), std::string::npos) << what << "\n  lacks " << row.message;
  }
}

TEST(Header, TakesWhatTheFormatAllows) {
  const Header header =
      parse_header(R"({"__metadata__":{"format":"pt"},)"
                   R"("late":{"data_offsets":[4,6],"shape":[1],"dtype":"BF16"},)"
                   R"("none":{"dtype":"F32","shape":[0,7],"data_offsets":[4,4]},)"
                   R"("scalar":{"dtype":"F32","shape":[],"data_offsets":[0,4]}}   )",
                   6, "f");
  ASSERT_EQ(header.tensors.size(), 3u);
  EXPECT_EQ(header.tensors[0].name, "scalar");
  EXPECT_EQ(header.tensors[1].name, "none");
  EXPECT_EQ(header.tensors[2].name, "late");
  EXPECT_EQ(header.tensors[2].dtype, StDType::kBF16);
  ASSERT_EQ(header.metadata.size(), 1u);
  EXPECT_EQ(header.metadata[0].second, "pt");
  EXPECT_TRUE(parse_header("{}", 0, "f").tensors.empty());
}

TEST(Header, EveryDTypeIsWrittenAndReadTheSame) {
  TestFolder folder;
  Header header;
  header.metadata = {{"format", "pt"}, {"note", "line\nbreak \"quoted\""}};
  for (int i = 0; i < kNumStDTypes; ++i) {
    TensorEntry tensor;
    tensor.name = "tensor." + std::string(name(static_cast<StDType>(i)));
    tensor.dtype = static_cast<StDType>(i);
    tensor.shape = {2, 8};
    header.tensors.push_back(tensor);
  }
  header.tensors.push_back({"e8m0", StDType::kF8E8M0, {3}, 0, 0});
  std::string written;
  {
    SafetensorsWriter writer(folder.path(), "all.safetensors", header);
    EXPECT_EQ(writer.header().data_start % 8, 0);
    for (size_t i = 0; i < header.tensors.size(); ++i) {
      const int64_t bytes = writer.header().tensors[i].bytes();
      const std::string data(static_cast<size_t>(bytes), static_cast<char>('A' + i));
      writer.write(i, 0, data.data(), bytes);
    }
    EXPECT_FALSE(folder.exists("all.safetensors"));
    writer.publish(true);
  }
  const File file = File::open_read(folder.path() + "/all.safetensors");
  const Header again = read_header(file);
  EXPECT_EQ(again.metadata, header.metadata);
  ASSERT_EQ(again.tensors.size(), header.tensors.size());
  for (size_t i = 0; i < again.tensors.size(); ++i) {
    const TensorEntry& tensor = again.tensors[i];
    SCOPED_TRACE(tensor.name);
    EXPECT_EQ(tensor.name, header.tensors[i].name);
    EXPECT_EQ(tensor.dtype, header.tensors[i].dtype);
    EXPECT_EQ(tensor.shape, header.tensors[i].shape);
    EXPECT_EQ(tensor.bytes(), i < static_cast<size_t>(kNumStDTypes) ? 2 * bits(tensor.dtype) : 3);
    std::string data(static_cast<size_t>(tensor.bytes()), '\0');
    file.read_at(again.data_start + tensor.begin, data.data(), tensor.bytes());
    EXPECT_EQ(data, std::string(data.size(), static_cast<char>('A' + i)));
  }
  EXPECT_EQ(again.tensors[1].bytes(), 8);  // F4 [2, 8] is 8 bytes
}

TEST(Writer, LeavesNothingBehindWhenItIsNotPublished) {
  TestFolder folder;
  {
    SafetensorsWriter writer(folder.path(), "x.safetensors",
                             {{{"a", StDType::kU8, {4}, 0, 0}}, {}});
    writer.write(0, 0, "abcd", 4);
  }
  EXPECT_EQ(folder.list(), std::vector<std::string>{});
}

TEST(Writer, GivesTheSameBytesEveryTime) {
  TestFolder folder;
  std::string files[2];
  for (int i = 0; i < 2; ++i) {
    const std::string file_name = "x" + std::to_string(i) + ".safetensors";
    SafetensorsWriter writer(
        folder.path(), file_name,
        {{{"b", StDType::kF32, {1}, 0, 0}, {"a", StDType::kU8, {3}, 0, 0}}, {{"k", "v"}}});
    // Written out of order: the bytes must not depend on it.
    writer.write(i == 0 ? 0 : 1, 0, i == 0 ? "1234" : "567", i == 0 ? 4 : 3);
    writer.write(i == 0 ? 1 : 0, 0, i == 0 ? "567" : "1234", i == 0 ? 3 : 4);
    writer.publish(false);
    files[i] = folder.read(file_name);
  }
  EXPECT_EQ(files[0], files[1]);
  EXPECT_NE(files[0].find(R"("b":{"dtype":"F32","shape":[1],"data_offsets":[0,4]})"),
            std::string::npos);
}

TEST(File, RefusesWhatIsNoSafetensorsFile) {
  TestFolder folder;
  const auto read = [&](const std::string& bytes) {
    folder.write("f", bytes);
    return error_of<DataError>([&] { read_header(File::open_read(folder.path() + "/f")); });
  };
  EXPECT_NE(read("").find("must begin with 8 bytes of header length, got 0 bytes"),
            std::string::npos);
  EXPECT_NE(read("1234567").find("got 7 bytes"), std::string::npos);
  EXPECT_NE(read(std::string("\x03\0\0\0\0\0\0\0{}", 10))
                .find("the header must end within the file's 10 bytes, got a header of 3"),
            std::string::npos);
  EXPECT_NE(read(std::string("\x01\xe1\xf5\x05\0\0\0\0{}", 10))
                .find("the header must have at most 100000000 bytes, got 100000001"),
            std::string::npos);
  EXPECT_NE(read(std::string(16, '\xff')).find("got 18446744073709551615"), std::string::npos);
  EXPECT_EQ(read(std::string("\x02\0\0\0\0\0\0\0{}", 10)), "nothing thrown");
  EXPECT_THROW(File::open_read(folder.path()), BackendError);
  EXPECT_THROW(File::open_read("/dev/zero"), BackendError);
  EXPECT_THROW(File::open_read(folder.path() + "/absent"), BackendError);
}

TEST(File, ReadsAndWritesBeyondTwoGiBAtOnce) {
  TestFolder folder;
  const File file = File::create(folder.path() + "/sparse");
  const int64_t far = (int64_t{5} << 30) + 7;
  file.write_at(far, "end", 3);
  EXPECT_EQ(file.size(), far + 3);
  char got[3];
  file.read_at(far, got, 3);
  EXPECT_EQ(std::string(got, 3), "end");
  EXPECT_NE(
      error_of<DataError>([&] { file.read_at(far, got, 4); }).find("the file must reach byte"),
      std::string::npos);
}

TEST(Index, RefusesEveryMalformedIndexWithItsOwnMessage) {
  const auto with = [](const std::string& shard) {
    return R"({"weight_map":{"a":")" + shard + "\"}}";
  };
  const std::pair<std::string, const char*> rows[] = {
      {"", "must be valid JSON in UTF-8"},
      {"[]", "an index must be an object, got array"},
      {"{}", "an index must hold an object \"weight_map\", got none"},
      {R"({"weight_map":[]})", "an index must hold an object \"weight_map\", got array"},
      {R"({"weight_map":{"a":1}})", "weight_map of \"a\": a shard must be a file name, got number"},
      {R"({"weight_map":{"a":"x.safetensors","a":"y.safetensors"}})",
       "keys of an object must differ, got \"a\" twice"},
      {R"({"weight_map":{},"metadata":[]})", "\"metadata\" must be an object, got array"},
      {R"({"weight_map":{}})", "weight_map must name at least one tensor, got none"},
      {with("../x.safetensors"), "a shard must be a plain file name in the index's own folder"},
      {with("/x.safetensors"), "a shard must be a plain file name in the index's own folder"},
      {with("sub/x.safetensors"), "a shard must be a plain file name in the index's own folder"},
      {with("a\\\\b.safetensors"), "a shard must be a plain file name in the index's own folder"},
      {with(""), "a shard must be a plain file name in the index's own folder"},
      {with(".."), "a shard must be a plain file name in the index's own folder"},
      {with(".x.safetensors"), "a shard must be a plain file name in the index's own folder"},
      {with("x\\u0000.safetensors"), "a shard must be a plain file name"},
      {with("x.bin"), "a shard's name must end in .safetensors, got \"x.bin\""},
      {std::string(100000, '['), "nesting must be at most 64 deep"},
      {R"({"a":1e999,"weight_map":{}})", "must be valid JSON"},
      {std::string("{\"weight_map\":{}}\0x", 19), "a NUL at byte 17"},
  };
  for (const auto& [text, message] : rows) {
    SCOPED_TRACE(text.substr(0, 80));
    const std::string what = error_of<DataError>([&] { parse_index(text, "i"); });
    EXPECT_EQ(what.rfind("[checkpoint] i", 0), 0u) << what;
    EXPECT_NE(what.find(message), std::string::npos) << what;
  }
}

TEST(Index, KeepsOrderAndOtherMetadata) {
  const Index index = parse_index(R"({"metadata":{"total_parameters":5,"total_size":1},)"
                                  R"("weight_map":{"z":"b.safetensors","a":"a.safetensors"}})",
                                  "i");
  EXPECT_EQ(build_index(index, 77),
            "{\n  \"metadata\": {\n    \"total_parameters\": 5,\n    \"total_size\": 77\n  },\n"
            "  \"weight_map\": {\n    \"z\": \"b.safetensors\",\n    \"a\": \"a.safetensors\"\n"
            "  }\n}\n");
}

TEST(Text, QuotesWhatCouldHarmATerminal) {
  EXPECT_EQ(quote("plain é"), "\"plain é\"");
  EXPECT_EQ(quote("\x1b[2J\"\\"), "\"\\x1b[2J\\\"\\\\\"");
  EXPECT_EQ(quote("\xff\xc0\x80"), "\"\\xff\\xc0\\x80\"");
  EXPECT_EQ(quote("\xc2\x9b"), "\"\\xc2\\x9b\"");
  EXPECT_LT(quote(std::string(1000000, 'x')).size(), 200u);
}

}  // namespace
}  // namespace tilekernels::io
