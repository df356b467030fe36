/** Words for tests: given ones first, then those of SplitMix64, the same as tests/vectors_words.py. */
export class ListedWords {
  secure = false;
  hi = 0;
  lo = 0;
  taken = 0;

  constructor(seed, first = []) {
    this.state = BigInt(seed);
    this.first = first.map(BigInt);
  }

  next() {
    this.taken += 1;
    const word = this.first.length ? this.first.shift() : this.#mixed();
    this.hi = Number(word >> 32n);
    this.lo = Number(word & 0xffffffffn);
  }

  #mixed() {
    const u64 = (x) => BigInt.asUintN(64, x);
    this.state = u64(this.state + 0x9e3779b97f4a7c15n);
    let z = this.state;
    z = u64((z ^ (z >> 30n)) * 0xbf58476d1ce4e5b9n);
    z = u64((z ^ (z >> 27n)) * 0x94d049bb133111ebn);
    return z ^ (z >> 31n);
  }
}
