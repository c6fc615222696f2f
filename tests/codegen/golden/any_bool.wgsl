@group(0) @binding(0) var<storage, read_write> p0: array<u32>;
@group(0) @binding(1) var<storage, read> p1: array<u32>;
fn max_i32(a: i32, b: i32) -> i32 { return select(a, b, a < b); }
@compute @workgroup_size(3)
fn main(@builtin(workgroup_id) group_id: vec3<u32>, @builtin(local_invocation_index) local_id: u32) {
  let lid = i32(local_id);
  var acc0: i32 = i32(-2147483648);
  let n0 = lid * 10i;
  for (var k0 = 0i; k0 < 10i; k0 += 1i) {
    let x0 = p1[n0 + k0] != 0u;
    acc0 = max_i32(acc0, i32(x0));
  }
  p0[lid] = u32(acc0 != 0i);
}
