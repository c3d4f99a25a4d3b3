// sampler.acme.mirostat: Mirostat 2.0 (Basu, Ramachandran, Keskar, Varshney: "Mirostat: A Neural Text Decoding Algorithm that
// Directly Controls Perplexity", ICLR 2021, arXiv:2007.14966). It holds the surprise (-log2 p) of the chosen tokens at `tau`
// bits: tokens above a limit mu are left out, one of the rest is drawn, and mu moves by eta * (tau - its surprise).
//
// A plugin in Rust without crates: this file and the generated tenon_abi.rs are all of it. Nothing in it panics: rustc is told
// -C panic=abort, because no panic may cross into C.
#![allow(non_camel_case_types)]

use std::os::raw::{c_char, c_void};
use std::ptr::null;

#[allow(dead_code)]
mod abi {
    include!(concat!(env!("TENON_INCLUDE"), "/tenon/abi/tenon_abi.rs"));
}
use abi::*;

// ---- parameters and state, both of a slot ----

#[repr(C)]
#[derive(Clone, Copy)]
struct Record {
    tau: f32,
    eta: f32,
}
// The state is one f32: how far mu has moved from 2 tau, where it starts; the host zeroes it when a sequence starts.

macro_rules! text {
    ($words:expr) => {
        concat!($words, "\0").as_ptr() as *const c_char
    };
}

const fn real(name: *const c_char, doc: *const c_char, value: f64, min: f64, max: f64) -> tenon_param_spec {
    tenon_param_spec {
        name,
        doc,
        unit: text!(""),
        r#type: TENON_PARAM_REAL,
        flags: TENON_PARAM_PER_REQUEST,
        real_default: value,
        real_min: min,
        real_max: max,
        ..tenon_param_spec::NEW
    }
}
static TAU: tenon_param_spec = real(text!("tau"), text!("Bits of surprise that the text is held at"), 5.0, 0.001, 100.0);
static ETA: tenon_param_spec = real(text!("eta"), text!("How fast the limit follows, 0 = never"), 0.1, 0.0, 1.0);

struct Specs([&'static tenon_param_spec; 2]);
unsafe impl Sync for Specs {}
static SPECS: Specs = Specs([&TAU, &ETA]);
static SCHEMA: tenon_param_schema = tenon_param_schema {
    count: 2,
    spec: &SPECS.0 as *const _ as *const *const tenon_param_spec,
    ..tenon_param_schema::NEW
};

unsafe extern "C" fn encode(_: *mut c_void, request: *const tenon_params, record: *mut c_void, _: *mut tenon_reason) -> tenon_status {
    let value = (*request).value; // value[i] belongs to SPECS[i]
    let eta = (*value.add(1)).real as f32;
    (record as *mut Record).write_unaligned(Record { tau: (*value).real as f32, eta });
    TENON_OK
}
unsafe extern "C" fn state_bytes(_: *mut c_void, _vocab: u32) -> u64 {
    std::mem::size_of::<f32>() as u64
}

// ---- what the operations compute ----

// The candidates of a row that are at most `mu` bits surprising, as a distribution of its own.
struct Kept<'a> {
    logits: &'a [f32],
    largest: f32,
    least: f32, // logit of the least likely that is kept
    sum: f64,   // of exp(logit - largest) over those that are kept
}

impl<'a> Kept<'a> {
    // None where no candidate is left. NaN compares as less than anything, and so is out like -infinity.
    fn of(logits: &'a [f32], mu: f32) -> Option<Kept<'a>> {
        let largest = logits.iter().fold(f32::NEG_INFINITY, |a, &l| if l > a { l } else { a });
        if largest == f32::NEG_INFINITY {
            return None;
        }
        let weight = |l: f32| ((l - largest) as f64).exp();
        let all: f64 = logits.iter().filter(|&&l| l > f32::NEG_INFINITY).map(|&l| weight(l)).sum();
        // -log2 p <= mu; the likeliest token is always kept.
        let limit = largest as f64 + all.ln() - mu as f64 * std::f64::consts::LN_2;
        let least = largest.min(limit as f32);
        let sum = logits.iter().filter(|&&l| l >= least).map(|&l| weight(l)).sum();
        Some(Kept { logits, largest, least, sum })
    }
    fn probability(&self, token: usize) -> f64 {
        let l = self.logits[token];
        if l >= self.least { ((l - self.largest) as f64).exp() / self.sum } else { 0.0 }
    }
    // The token at `u`, in [0, 1), of the distribution's sum in order of ids.
    fn at(&self, u: f64) -> usize {
        let mut left = u * self.sum;
        let mut last = 0;
        for (token, &l) in self.logits.iter().enumerate().filter(|(_, &l)| l >= self.least) {
            last = token;
            left -= ((l - self.largest) as f64).exp();
            if left < 0.0 {
                break;
            }
        }
        last
    }
}

fn moved(mu: f32, record: Record, logits: &[f32], token: i32) -> f32 {
    let kept = match Kept::of(logits, mu) {
        Some(kept) if token >= 0 && (token as usize) < logits.len() => kept,
        _ => return mu,
    };
    let p = kept.probability(token as usize);
    // A drafted token that was left out is refused anyhow.
    if p > 0.0 { mu - record.eta * (-p.log2() as f32 - record.tau) } else { mu }
}

// Philox4x32-10 (Salmon et al., SC 2011): the first word, as a number in [0, 1).
fn random(key: [u32; 2], position: u32) -> f64 {
    let (mut c, mut k) = ([position, 0, 0, 0], key);
    for _ in 0..10 {
        let (a, b) = (0xd2511f53u64 * c[0] as u64, 0xcd9e8d57u64 * c[2] as u64);
        c = [(b >> 32) as u32 ^ c[1] ^ k[0], b as u32, (a >> 32) as u32 ^ c[3] ^ k[1], a as u32];
        k = [k[0].wrapping_add(0x9e3779b9), k[1].wrapping_add(0xbb67ae85)];
    }
    c[0] as f64 / 4294967296.0
}

// ---- the operations: a chunk is a row to choose for, and a sequence to move the state of ----

#[repr(C)]
struct Args {
    vocab: u32,
    reserved: u32,
    stride: i64, // elements from row to row of the logits
}

#[derive(Clone, Copy)]
enum Operand {
    Logits,
    Params,
    State,
    Next,
    Live,
    OutRow,
    Slot,
    Token,
    Parent,
    Pos,
    Rng,
    Accepted,
    SeqRow,
    Survivor,
}
const OPERANDS: usize = 14;

struct Step<'a> {
    args: &'a Args,
    ptr: *const *mut c_void,
}
impl<'a> Step<'a> {
    unsafe fn new(args: *const c_void, part: *const tenon_part) -> Step<'a> {
        Step { args: &*(args as *const Args), ptr: (*(*part).launch).ptr }
    }
    unsafe fn at<T: Copy>(&self, operand: Operand, i: usize) -> T {
        *(*self.ptr.add(operand as usize) as *const T).add(i)
    }
    unsafe fn set<T>(&self, operand: Operand, i: usize, value: T) {
        *(*self.ptr.add(operand as usize) as *mut T).add(i) = value
    }
    unsafe fn logits(&self, out_row: usize) -> &'a [f32] {
        let base = *self.ptr.add(Operand::Logits as usize) as *const f32;
        std::slice::from_raw_parts(base.offset(out_row as isize * self.args.stride as isize), self.args.vocab as usize)
    }
    // The out row that a row of the step is, if its logits were wanted.
    unsafe fn out_row(&self, row: i32) -> Option<usize> {
        let live: u32 = self.at(Operand::Live, 2);
        (0..live as usize).find(|&i| self.at::<i32>(Operand::OutRow, i) == row)
    }
    unsafe fn mu(&self, slot: i32) -> (Record, f32) {
        let record: Record = self.at(Operand::Params, slot as usize);
        (record, 2.0 * record.tau + self.at::<f32>(Operand::State, slot as usize))
    }
}

// Rows of drafts are chosen for at once: a row takes mu as it is after the tokens before it in this step, its own included.
unsafe fn mu_of_row(step: &Step, row: i32, slot: i32) -> f32 {
    let (record, mu) = step.mu(slot);
    let parent: i32 = step.at(Operand::Parent, row as usize);
    if parent < 0 || parent >= row {
        return mu;
    }
    let before = mu_of_row(step, parent, slot);
    match step.out_row(parent) {
        Some(i) => moved(before, record, step.logits(i), step.at(Operand::Token, row as usize)),
        None => before, // a row of the prompt
    }
}

unsafe extern "C" fn choose(_: *mut c_void, args: *const c_void, part: *const tenon_part) -> tenon_status {
    let step = Step::new(args, part);
    let live: u32 = step.at(Operand::Live, 2);
    for i in (*part).begin..(*part).end.min(live) {
        let row: i32 = step.at(Operand::OutRow, i as usize);
        let slot: i32 = step.at(Operand::Slot, row as usize);
        let key = [step.at(Operand::Rng, 4 * slot as usize), step.at(Operand::Rng, 4 * slot as usize + 1)];
        let position = step.at::<i32>(Operand::Pos, row as usize) as u32 + 1;
        let kept = Kept::of(step.logits(i as usize), mu_of_row(&step, row, slot));
        let token = kept.map_or(0, |k| k.at(random(key, position)));
        step.set(Operand::Next, i as usize, token as i32);
    }
    TENON_OK
}

unsafe extern "C" fn accept(_: *mut c_void, args: *const c_void, part: *const tenon_part) -> tenon_status {
    let step = Step::new(args, part);
    let live: u32 = step.at(Operand::Live, 1);
    for sequence in (*part).begin as usize..(*part).end.min(live) as usize {
        let first: i32 = step.at(Operand::SeqRow, sequence);
        let end: i32 = step.at(Operand::SeqRow, sequence + 1);
        let accepted: i32 = step.at(Operand::Accepted, sequence);
        for i in first..end.min(first + accepted) {
            let row: i32 = step.at(Operand::Survivor, i as usize);
            let slot: i32 = step.at(Operand::Slot, row as usize);
            if let (true, Some(i)) = (slot >= 0, step.out_row(row)) {
                let (record, mu) = step.mu(slot);
                let mu = moved(mu, record, step.logits(i), step.at(Operand::Next, i));
                step.set(Operand::State, slot as usize, mu - 2.0 * record.tau);
            }
        }
    }
    TENON_OK
}

type Part = unsafe extern "C" fn(*mut c_void, *const c_void, *const tenon_part) -> tenon_status;

unsafe fn emit(
    name: *const c_char, part: Part, chunks: u32, written: Operand, s: &tenon_sampling, c: &tenon_candidates, rec: &tenon_recorder,
) -> tenon_status {
    let (step, describe, take) = match (rec.step, rec.describe, rec.emit) {
        (Some(step), Some(describe), Some(take)) => (step, describe, take),
        _ => return TENON_ERROR,
    };
    let mut logits = tenon_tensor::NEW;
    describe(rec.ctx, c.logits, &mut logits);
    let args = Args { vocab: c.vocab, reserved: 0, stride: logits.stride[0] / 4 };
    let role = |id| step(rec.ctx, id);
    let tensors: [tenon_tid; OPERANDS] = [
        c.logits, s.params, s.state, s.next, role(TENON_STEP_LIVE), role(TENON_STEP_OUT_ROW), role(TENON_STEP_SLOT),
        role(TENON_STEP_TOKEN), role(TENON_STEP_PARENT), role(TENON_STEP_POS), role(TENON_STEP_RNG),
        role(TENON_STEP_ACCEPTED), role(TENON_STEP_SEQ_ROW), role(TENON_STEP_SURVIVOR),
    ];
    let mut operands = [tenon_operand { tensor: 0, access: TENON_READ }; OPERANDS];
    for (operand, tensor) in operands.iter_mut().zip(tensors) {
        operand.tensor = tensor;
    }
    operands[written as usize].access |= TENON_WRITE;
    let mut op = tenon_op::NEW;
    op.name = name;
    op.operand = operands.as_ptr();
    op.n_operands = OPERANDS as u32;
    op.args = &args as *const Args as *const c_void;
    op.args_bytes = std::mem::size_of::<Args>() as u32;
    op.phases = 1;
    op.chunks[0] = chunks;
    op.cost.read[1] = 4.0 * c.vocab as f64; // a row
    op.cost.flops[1] = 40.0 * c.vocab as f64;
    op.part = Some(part);
    take(rec.ctx, &op) // the host has noted why, if it refuses
}

unsafe extern "C" fn record_select(
    _: *mut c_void, s: *const tenon_sampling, c: *const tenon_candidates, rec: *const tenon_recorder, _: *mut tenon_reason,
) -> tenon_status {
    emit(text!("choose"), choose, (*(*rec).bounds).out_rows, Operand::Next, &*s, &*c, &*rec)
}
unsafe extern "C" fn record_accept(
    _: *mut c_void, s: *const tenon_sampling, given: *const tenon_candidates, rec: *const tenon_recorder, _: *mut tenon_reason,
) -> tenon_status {
    emit(text!("accept"), accept, (*(*rec).bounds).seqs, Operand::State, &*s, &*given, &*rec)
}

// ---- the component ----

static TABLE: tenon_sampler = tenon_sampler {
    in_forms: TENON_DENSE,
    is_selector: 1,
    param_bytes: std::mem::size_of::<Record>() as u32,
    state_bytes: Some(state_bytes),
    encode: Some(encode),
    record_select: Some(record_select),
    record_accept: Some(record_accept),
    ..tenon_sampler::NEW
};

unsafe extern "C" fn create(_: *const tenon_params, _: *const tenon_env, instance: *mut *mut c_void, _: *mut tenon_reason) -> tenon_status {
    *instance = Box::into_raw(Box::new(0u8)) as *mut c_void; // it has nothing to remember, but two instances are two
    TENON_OK
}
unsafe extern "C" fn destroy(instance: *mut c_void) {
    drop(Box::from_raw(instance as *mut u8))
}
unsafe extern "C" fn interface(_: *mut c_void, id: *const c_char) -> *const c_void {
    let known = std::ffi::CStr::from_ptr(id).to_bytes() == b"sampler/1";
    if known { &TABLE as *const tenon_sampler as *const c_void } else { null() }
}

static COMPONENT: tenon_component = tenon_component {
    kind: text!("sampler"),
    name: text!("acme.mirostat"),
    device: text!("cpu"),
    doc: text!("Holds the surprise of the chosen tokens at a number of bits"),
    schema: &SCHEMA,
    create: Some(create),
    destroy: Some(destroy),
    interface: Some(interface),
    ..tenon_component::NEW
};
struct Components([&'static tenon_component; 1]);
unsafe impl Sync for Components {}
static COMPONENTS: Components = Components([&COMPONENT]);

#[no_mangle]
pub static tenon_plugin_v1: tenon_plugin = tenon_plugin {
    h: tenon_head { size: std::mem::size_of::<tenon_plugin>() as u32, major: TENON_ABI_MAJOR as u16, minor: TENON_ABI_MINOR as u16 },
    vendor: text!("Acme"),
    version: text!("0.1"),
    license: text!("MIT"),
    url: text!(""),
    compiler: text!("rustc"),
    n_components: 1,
    component: &COMPONENTS.0 as *const _ as *const *const tenon_component,
    ..tenon_plugin::NEW
};

// The note, which the host reads before it opens the library.
const fn letters<const N: usize>(words: &str) -> [c_char; N] {
    let mut out = [0; N];
    let mut i = 0;
    while i < words.len() {
        out[i] = words.as_bytes()[i] as c_char;
        i += 1;
    }
    out
}
#[used]
#[link_section = ".note.tenon"]
static NOTE: tenon_note_section = tenon_note_section {
    owner_bytes: 6,
    descriptor_bytes: std::mem::size_of::<tenon_note>() as u32,
    r#type: TENON_NOTE_TYPE,
    owner: letters("Tenon"),
    note: tenon_note {
        abi_major: TENON_ABI_MAJOR as u16,
        abi_minor: TENON_ABI_MINOR as u16,
        kind: letters("sampler"),
        name: letters("acme.mirostat"),
        device: letters("cpu"),
        layout_hash: letters(TENON_LAYOUT_SAMPLER),
        targets: letters("x86-64"),
        ..tenon_note::NEW // the schema's hash is not stated: the library is for one device only
    },
};
