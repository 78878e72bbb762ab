//! Dedicated Vulkan allocations for large arrays.
//!
//! wgpu does not mark the memory of a buffer as dedicated. NVIDIA's driver then makes gathers slow
//! from about 8 MB on. Random reads of 32 bytes on an H200 (driver 580), in 10⁹ per second:
//!
//! | array | 19 MB | 38 MB | 96 MB | 960 MB |
//! |---|---|---|---|---|
//! | memory from wgpu | 56 | 48 | 44 | 38 |
//! | dedicated allocation | 135 | 104 | 56 | 39 |
//!
//! Sequential reads are equally fast.

#![expect(unsafe_code, reason = "Vulkan's own allocations behind wgpu's buffers")]

use ash::vk;
use wgpu::hal::api::Vulkan;
use wgpu::hal::vulkan;

use super::device::{ARRAY, WgpuDevice};
use crate::Result;

/// Minimum size of an array with a dedicated allocation. A device may have at most 4096
/// allocations.
const LARGE: u64 = 1 << 20;

impl WgpuDevice {
    /// Allocates a zeroed array in a dedicated allocation.
    ///
    /// Returns `None` for small arrays, for adapters without Vulkan, and if Vulkan refuses the
    /// allocation.
    pub(super) fn alloc_dedicated(&self, bytes: u64) -> Result<Option<wgpu::Buffer>> {
        let software_without_room =
            self.properties.software && bytes > crate::util::memory::available_memory();
        if bytes < LARGE || bytes > self.properties.limits.buffer || software_without_room {
            return Ok(None);
        }
        let raw = {
            // SAFETY: the device is only used to create a buffer and its memory; it is neither
            // destroyed nor kept.
            let Some(device) = (unsafe { self.wgpu.as_hal::<Vulkan>() }) else { return Ok(None) };
            match dedicated(&device, bytes) {
                Some(raw) => raw,
                None => return Ok(None),
            }
        };
        let descriptor =
            wgpu::BufferDescriptor { label: None, size: bytes, usage: ARRAY, mapped_at_creation: false };
        // SAFETY: the buffer was made by this device, for these uses and of this size. It is
        // cleared before its first use.
        let buffer = unsafe { self.wgpu.create_buffer_from_hal::<Vulkan>(raw, &descriptor) };
        self.alive("an allocation")?;
        self.clear(&buffer)?;
        Ok(Some(buffer))
    }
}

fn dedicated(device: &vulkan::Device, bytes: u64) -> Option<vulkan::Buffer> {
    let (vulkan, instance) = (device.raw_device(), device.shared_instance().raw_instance());
    let usage = vk::BufferUsageFlags::STORAGE_BUFFER
        | vk::BufferUsageFlags::TRANSFER_SRC
        | vk::BufferUsageFlags::TRANSFER_DST;
    let create = vk::BufferCreateInfo::default().size(bytes).usage(usage);
    // SAFETY: the device outlives the borrow. Objects created here are destroyed here or returned
    // whole.
    unsafe {
        let memory = instance.get_physical_device_memory_properties(device.raw_physical_device());
        let buffer = vulkan.create_buffer(&create, None).ok()?;
        let needs = vulkan.get_buffer_memory_requirements(buffer);
        let allocated = memory_type(&memory, needs.memory_type_bits).and_then(|index| {
            let mut only = vk::MemoryDedicatedAllocateInfo::default().buffer(buffer);
            let allocate = vk::MemoryAllocateInfo::default()
                .allocation_size(needs.size)
                .memory_type_index(index)
                .push_next(&mut only);
            vulkan.allocate_memory(&allocate, None).ok()
        });
        let Some(memory) = allocated else {
            vulkan.destroy_buffer(buffer, None);
            return None;
        };
        if vulkan.bind_buffer_memory(buffer, memory, 0).is_err() {
            vulkan.destroy_buffer(buffer, None);
            vulkan.free_memory(memory, None);
            return None;
        }
        Some(vulkan::Buffer::from_raw_managed(buffer, memory, 0, needs.size))
    }
}

/// Returns the first ordinary device-local memory type among `bits`.
///
/// Vulkan orders types by preference. Types with unusual properties are excluded.
fn memory_type(memory: &vk::PhysicalDeviceMemoryProperties, bits: u32) -> Option<u32> {
    let usual = vk::MemoryPropertyFlags::DEVICE_LOCAL
        | vk::MemoryPropertyFlags::HOST_VISIBLE
        | vk::MemoryPropertyFlags::HOST_COHERENT
        | vk::MemoryPropertyFlags::HOST_CACHED;
    (0..).zip(memory.memory_types_as_slice()).find_map(|(index, of)| {
        let flags = of.property_flags;
        let fits = flags.contains(vk::MemoryPropertyFlags::DEVICE_LOCAL) && usual.contains(flags);
        (fits && bits >> index & 1 == 1).then_some(index)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lane::backend::Backend;
    use crate::lane::wgpu::tests::first;

    #[test]
    fn the_memory_type_is_the_first_suitable_one() {
        use vk::MemoryPropertyFlags as F;
        let mut memory = vk::PhysicalDeviceMemoryProperties { memory_type_count: 4, ..Default::default() };
        let flags = [
            F::HOST_VISIBLE,
            F::DEVICE_LOCAL | F::PROTECTED,
            F::DEVICE_LOCAL,
            F::DEVICE_LOCAL | F::HOST_VISIBLE,
        ];
        for (of, flags) in memory.memory_types.iter_mut().zip(flags) {
            of.property_flags = flags;
        }
        assert_eq!(memory_type(&memory, 0b1111), Some(2));
        assert_eq!(memory_type(&memory, 0b1011), Some(3));
        assert_eq!(memory_type(&memory, 0b0011), None);
    }

    #[test]
    fn large_arrays_have_dedicated_memory() {
        let Some(lane) = first() else { return };
        if lane.device.properties.backend != "vulkan" {
            return crate::devices::skip(
                "Vulkan",
                format!("{} is no Vulkan adapter", lane.device.properties.name),
            );
        }
        let bytes = LARGE + 20;
        let array =
            lane.device.alloc_dedicated(bytes).expect("memory suffices").expect("an array of its own");
        assert_eq!((array.size(), array.usage()), (bytes, ARRAY));
        let mut read = vec![1; bytes as usize];
        lane.download(&array, 0, &mut read).expect("it is read");
        assert!(read.iter().all(|&b| b == 0), "it begins with zeros");

        let written: Vec<u8> = (0..bytes).map(|k| (k % 251) as u8).collect();
        lane.upload(&written, &array, 0).expect("it is written");
        lane.download(&array, 0, &mut read).expect("it is read");
        assert!(read == written);

        let beyond = lane.device.properties.limits.buffer + 4;
        for (bytes, why) in
            [(LARGE - 4, "small arrays share their memory"), (beyond, "it is refused elsewhere")]
        {
            assert!(lane.device.alloc_dedicated(bytes).expect("no error").is_none(), "{why}");
        }
    }
}
