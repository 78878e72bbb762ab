// 256 walks of one task, one per thread.

fn walk_block(block: u32, local: u32) {
    let task_number = block / p.per_task;
    let point = p.first_point + (block - task_number * p.per_task) * 256u + local;
    var theta = Value();
    if point < p.end_point {
        let task = tasks[task_number];
        theta = walk_from(task.x, point, task.y, task.zw);
    }
    let sum = tree(local, theta);
    if local == 0u { out[block] = sum; }
}
