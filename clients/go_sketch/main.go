// Reads one partition of a store's log: which records count, and what is sealed in them. A sketch of the whole way in
// the standard library alone; docs/reading-the-log.md explains every step. It takes the messages as lines, bytes as
// hexadecimal, so that any Kafka client can be put before it:
//
//	master HEX           the master key
//	key HEX [HEX]        a message of the keys topic: key and value, no value for a tombstone
//	log OFFSET HEX       a message of the partition: offset and value
//	place ID PARTITIONS  asks for the partition of an ID
package main

import (
	"bufio"
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"log"
	"os"
	"strconv"
	"strings"
	"unicode/utf8"
)

// The headers of schemas 1 and 2: marker and fingerprint. A later schema has another fingerprint, and more fields.
var (
	header1 = []byte{0xc3, 0x01, 0x36, 0x4f, 0xbc, 0x4e, 0x21, 0x72, 0xb7, 0xba}
	header2 = []byte{0xc3, 0x01, 0x44, 0xea, 0x8a, 0xcb, 0x13, 0x3b, 0xd3, 0x16}
)

var (
	kinds = []string{"record", "session_created", "session_ended", "session_purged", "run_reserved", "barrier",
		// Schema 2 has these too.
		"memory_appended", "memory_purged", "consumer_created", "consumer_committed", "consumer_deleted"}
	outcomes = []string{"none", "proceed", "stop"}
	statuses = []string{"none", "suspended", "completed", "failed", "canceled"}
)

type record struct {
	position               int64
	prev, commandID        []byte
	last                   bool
	kind, outcome, status  string
	texts                  [9]string // type, event_key, session, run, agent, turn, parent, predecessor, child
	timestamp, home        int64
	keyID, sealed, encoded []byte
	consumer               string // From schema 2 on, with place.
	place                  []byte
}

// place tells the partition in which a session, or a tree without one by its root's run ID, is.
func place(id string, partitions uint64) uint64 {
	digest := sha256.Sum256([]byte(id))
	return binary.BigEndian.Uint64(digest[:8]) % partitions
}

// An avro reader takes one value after the other from the front.
type avro struct {
	data []byte
	err  error
}

func (a *avro) long() int64 {
	value, n := binary.Varint(a.data) // Avro's zigzag is Go's.
	if n <= 0 {
		a.err, n = errors.New("a number is cut short"), len(a.data)
	}
	a.data = a.data[n:]
	return value
}

func (a *avro) bytes() []byte {
	length := a.long()
	if length < 0 || length > int64(len(a.data)) {
		a.err = errors.New("bytes are cut short")
		return nil
	}
	value := a.data[:length]
	a.data = a.data[length:]
	return value
}

func (a *avro) bool() bool {
	if len(a.data) == 0 {
		a.err = errors.New("a boolean is cut short")
		return false
	}
	value := a.data[0] == 1
	a.data = a.data[1:]
	return value
}

func (a *avro) enum(symbols []string) string {
	index := a.long()
	if index < 0 || index >= int64(len(symbols)) {
		a.err = errors.New("no such symbol")
		return ""
	}
	return symbols[index]
}

func decode(value []byte) (*record, error) {
	if !bytes.HasPrefix(value, header1) && !bytes.HasPrefix(value, header2) {
		return nil, errors.New("not a log record of schema 1 or 2")
	}
	a := &avro{data: value[len(header1):]}
	r := &record{encoded: value}
	r.position, r.prev, r.last, r.commandID = a.long(), a.bytes(), a.bool(), a.bytes()
	a.long() // appended_at
	r.kind = a.enum(kinds)
	for i := range r.texts {
		r.texts[i] = string(a.bytes())
	}
	r.timestamp, r.outcome, r.status = a.long(), a.enum(outcomes), a.enum(statuses)
	r.home, r.keyID, r.sealed = a.long(), a.bytes(), a.bytes()
	if bytes.HasPrefix(value, header2) {
		r.consumer, r.place = string(a.bytes()), a.bytes()
	}
	if a.err == nil && len(a.data) > 0 {
		a.err = errors.New("bytes too many")
	}
	return r, a.err
}

// A rule knows which records of a partition count. It is fed them in order, from offset 0.
type rule struct {
	digest  hash.Hash // Over the encoded records of the last counted batch; nil before the first.
	end     int64     // The position after the last counted command.
	held    []*record // A command whose last record has not come yet.
	foreign bool      // In a batch that follows another history.
}

func (u *rule) prev() []byte {
	if u.digest == nil {
		return make([]byte, sha256.Size)
	}
	return u.digest.Sum(nil)
}

// take returns the command that a record completes, if it counts.
func (u *rule) take(offset int64, r *record) ([]*record, error) {
	if r.position != offset || (u.foreign && len(r.prev) == 0) {
		if len(u.held) > 0 {
			return nil, errors.New("a void record inside a command")
		}
		return nil, nil
	}
	expected := u.end
	if len(u.held) > 0 {
		expected = u.held[len(u.held)-1].position + 1
	}
	switch {
	case len(r.prev) > 0 && len(u.held) > 0:
		return nil, errors.New("a batch starts inside a command")
	case len(r.prev) > 0:
		if u.foreign = !bytes.Equal(r.prev, u.prev()); u.foreign {
			log.Printf("position %d: a batch that follows another history: the log was rewritten", offset)
			return nil, nil
		}
	case offset != expected || (u.digest == nil && len(u.held) == 0):
		return nil, errors.New("a record inside a batch, without the record before it")
	}
	u.held = append(u.held, r)
	if !r.last {
		return nil, nil
	}
	command := u.held
	if len(command[0].prev) > 0 {
		u.digest = sha256.New()
	}
	for _, each := range command {
		u.digest.Write(each.encoded)
	}
	u.end, u.held = r.position+1, nil
	return command, nil
}

func open(key, sealed, associated []byte) ([]byte, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	gcm, err := cipher.NewGCM(block)
	if err != nil || len(sealed) < gcm.NonceSize() {
		return nil, errors.New("too short for a nonce")
	}
	return gcm.Open(nil, sealed[:gcm.NonceSize()], sealed[gcm.NonceSize():], associated)
}

// associated is what a sealed value is bound to. Lengths are in code points, not in bytes.
func associated(r *record) []byte {
	texts := append([]string{r.kind}, r.texts[:]...)
	texts = append(texts, r.outcome, r.status)
	lengths := make([]string, len(texts))
	for i, text := range texts {
		lengths[i] = strconv.Itoa(utf8.RuneCountInString(text))
	}
	head := fmt.Sprintf("%d;%d;%s;%s", r.timestamp, r.home, strings.Join(lengths, ","), strings.Join(texts, ""))
	if r.consumer != "" || len(r.place) > 0 {
		head += fmt.Sprintf(";%d;%s", utf8.RuneCountInString(r.consumer), r.consumer) + string(r.place)
	}
	return append(append(append([]byte{}, r.commandID...), r.keyID...), head...)
}

type keys struct {
	master []byte
	kept   map[string][]byte // By key ID, unwrapped.
	gone   map[string]bool
}

func (k *keys) take(key, value []byte) error {
	text, found := strings.CutPrefix(string(key), "key\x00")
	if !found || len(text) < 18 {
		return nil
	}
	owner, id := text[:len(text)-17], text[len(text)-16:]
	if value == nil {
		k.gone[id] = true
		delete(k.kept, id)
		return nil
	}
	if k.gone[id] {
		return nil
	}
	unwrapped, err := open(k.master, value, []byte("key\x00"+id+owner))
	k.kept[id] = unwrapped
	return err
}

// payload opens a sealed record. What else is sealed follows the payload, by the schema of sealed content.
func (k *keys) payload(r *record) (string, error) {
	key, found := k.kept[string(r.keyID)]
	if len(r.sealed) == 0 || !found {
		return "", nil
	}
	packed, err := open(key, r.sealed, associated(r))
	if err != nil || len(packed) < 2 {
		return "", errors.New("what is sealed does not open")
	}
	if packed[0] == 1 {
		return "(one zstd frame: any zstd library unpacks it)", nil
	}
	content := packed[1:]
	if content[0] == 0 {
		return string(content[1:]), nil
	}
	a := &avro{data: content[1:]}
	text := string(a.bytes())
	return text, a.err
}

func main() {
	k := &keys{kept: map[string][]byte{}, gone: map[string]bool{}}
	u := &rule{}
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		if err := line(strings.Fields(lines.Text()), k, u); err != nil {
			log.Fatal(err)
		}
	}
	if err := lines.Err(); err != nil {
		log.Fatal(err)
	}
}

func line(words []string, k *keys, u *rule) error {
	if len(words) < 2 {
		return errors.New("a line has two words or three")
	}
	if words[0] == "place" {
		partitions, err := strconv.ParseUint(words[2], 10, 64)
		fmt.Println(place(words[1], partitions))
		return err
	}
	data, err := hex.DecodeString(words[len(words)-1])
	if err != nil {
		return err
	}
	switch {
	case words[0] == "master":
		k.master = data
		return nil
	case words[0] == "key" && len(words) == 2:
		return k.take(data, nil)
	case words[0] == "key":
		key, err := hex.DecodeString(words[1])
		if err != nil {
			return err
		}
		return k.take(key, data)
	}
	offset, err := strconv.ParseInt(words[1], 10, 64)
	if err != nil {
		return err
	}
	r, err := decode(data)
	if err != nil {
		return fmt.Errorf("offset %d: %w", offset, err)
	}
	command, err := u.take(offset, r)
	if err != nil {
		return fmt.Errorf("offset %d: %w", offset, err)
	}
	for _, each := range command {
		payload, err := k.payload(each)
		if err != nil {
			return fmt.Errorf("offset %d: %w", offset, err)
		}
		fmt.Printf("%d\t%s\t%s\t%s\t%s\n", each.position, each.kind, each.texts[2], each.texts[3], payload)
	}
	return nil
}
