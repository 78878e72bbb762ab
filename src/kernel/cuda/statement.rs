//! Translation of statements: control flow, stores, calls and barriers.

use naga::{Barrier, Block, Expression, Handle, Statement};

use super::function::Body;
use super::types::value_name;
use super::{Written, refuse};

impl Body<'_> {
    pub(super) fn block(&mut self, block: &Block) -> Written<()> {
        for (statement, &span) in block.span_iter() {
            self.statement(statement).map_err(|r| r.at(span))?;
        }
        Ok(())
    }

    /// Writes a block at the next depth, with its own declarations.
    fn nested(&mut self, block: &Block) -> Written<()> {
        let hoisted = self.hoisted.take();
        self.depth += 1;
        self.block(block)?;
        self.depth -= 1;
        self.hoisted = hoisted;
        Ok(())
    }

    /// Declares a name for a value that is computed at this place only.
    fn define(&mut self, expression: Handle<Expression>, text: &str) -> Written<()> {
        let given = self.function_scope()?.named_expressions.get(&expression);
        let name = value_name(given.map(String::as_str), expression);
        let ty = self.unit.resolution_text(self.resolution(expression))?;
        self.declare(&ty, &name, text);
        self.names.insert(expression, name);
        Ok(())
    }

    /// Writes the declaration of a constant, or its assignment if declarations are hoisted.
    fn declare(&mut self, ty: &str, name: &str, text: &str) {
        match &mut self.hoisted {
            Some(declarations) => {
                declarations.push(format!("{ty} {name};"));
                self.line(&format!("{name} = {text};"));
            }
            None => self.line(&format!("const {ty} {name} = {text};")),
        }
    }

    /// Writes a computation, with a name for its result if that is used.
    fn define_result(&mut self, result: Option<Handle<Expression>>, text: &str) -> Written<()> {
        match result {
            Some(result) => self.define(result, text),
            None => {
                self.line(&format!("{text};"));
                Ok(())
            }
        }
    }

    fn statement(&mut self, statement: &Statement) -> Written<()> {
        match *statement {
            Statement::Emit(ref range) => {
                for expression in range.clone() {
                    // A pointer is written at its uses; its indices have names by then.
                    if self.is_pointer(expression) {
                        continue;
                    }
                    let text = self.expression(expression)?;
                    // An unused expression is omitted only after translation, so that it must be in
                    // the subset, too.
                    if self.uses(expression) == 0 {
                        continue;
                    }
                    self.define(expression, &text).map_err(|r| r.at(self.arena.get_span(expression)))?;
                }
            }
            Statement::Block(ref block) => {
                self.line("{");
                self.nested(block)?;
                self.line("}");
            }
            Statement::If { condition, ref accept, ref reject } => {
                let condition = self.value(condition)?;
                // naga translates the condition of `for` and `while` to an `if` that only has an
                // `else`.
                let (condition, accept, reject) = if accept.is_empty() {
                    (format!("!{condition}"), reject, accept)
                } else {
                    (condition, accept, reject)
                };
                self.line(&format!("if ({condition}) {{"));
                self.nested(accept)?;
                if !reject.is_empty() {
                    self.line("} else {");
                    self.nested(reject)?;
                }
                self.line("}");
            }
            Statement::Switch { .. } => return refuse("switch"),
            Statement::Loop { ref body, ref continuing, break_if } => {
                self.repeat(body, continuing, break_if)?;
            }
            Statement::Break => self.line("break;"),
            Statement::Continue => match self.loops.last().cloned().flatten() {
                Some(label) => self.line(&format!("goto {label};")),
                None => self.line("continue;"),
            },
            Statement::Return { value: None } => self.line("return;"),
            Statement::Return { value: Some(value) } => {
                let value = self.value(value)?;
                self.line(&format!("return {value};"));
            }
            Statement::Kill => return refuse("discard"),
            Statement::ControlBarrier(Barrier::SUB_GROUP) => return refuse("subgroup operations"),
            // It also orders the memory accesses of its threads.
            Statement::ControlBarrier(_) => self.line("__syncthreads();"),
            Statement::MemoryBarrier(_) => return refuse("a barrier of memory alone"),
            Statement::Store { pointer, value } => {
                let (place, value) = (self.place(pointer)?, self.value(value)?);
                self.line(&format!("{place} = {value};"));
            }
            Statement::Atomic { .. } => return refuse("atomic operations"),
            Statement::WorkGroupUniformLoad { .. } => return refuse("workgroupUniformLoad"),
            Statement::Call { function, ref arguments, result } => {
                let mut values = Vec::new();
                for &argument in arguments {
                    values.push(if self.is_pointer(argument) {
                        self.place(argument)?
                    } else {
                        self.value(argument)?
                    });
                }
                let globals = Body::globals(self.unit, &self.unit.info[function]);
                values.extend(globals.into_iter().map(|g| self.unit.global_name(g)));
                let text = format!("{}({})", self.unit.function_name(function), values.join(", "));
                self.define_result(result, &text)?;
            }
            Statement::SubgroupBallot { .. }
            | Statement::SubgroupGather { .. }
            | Statement::SubgroupCollectiveOperation { .. } => return refuse("subgroup operations"),
            Statement::ImageStore { .. } | Statement::ImageAtomic { .. } => return refuse("textures"),
            Statement::RayQuery { .. } | Statement::RayPipelineFunction(_) => return refuse("ray queries"),
            Statement::CooperativeStore { .. } => return refuse("cooperative matrices"),
        }
        Ok(())
    }

    /// Writes a loop.
    ///
    /// Values of the body are in scope in `continuing` and in `break_if`, so all three share one
    /// block. If a `continue` skips the rest of the body, C++ forbids to jump over declarations.
    /// The declarations of the body are then placed before it.
    fn repeat(
        &mut self,
        body: &Block,
        continuing: &Block,
        break_if: Option<Handle<Expression>>,
    ) -> Written<()> {
        let hoisted = self.hoisted.take();
        let labelled = continues(body) && !(continuing.is_empty() && break_if.is_none());
        self.line("for (;;) {");
        self.depth += 1;
        if labelled {
            self.labels += 1;
            let label = format!("continuing_{}", self.labels);
            self.loops.push(Some(label.clone()));
            self.hoisted = Some(Vec::new());
            self.depth += 1;
            let before = std::mem::take(&mut self.out);
            self.block(body)?;
            let inside = std::mem::replace(&mut self.out, before);
            self.depth -= 1;
            for declaration in self.hoisted.take().unwrap_or_default() {
                self.line(&declaration);
            }
            self.line("{");
            self.out.push_str(&inside);
            self.line("}");
            self.line(&format!("{label}:;"));
        } else {
            self.loops.push(None);
            self.block(body)?;
        }
        self.block(continuing)?;
        if let Some(condition) = break_if {
            let condition = self.value(condition)?;
            self.line(&format!("if ({condition}) break;"));
        }
        self.loops.pop();
        self.depth -= 1;
        self.line("}");
        self.hoisted = hoisted;
        Ok(())
    }
}

/// Returns true if a loop's body has a `continue` of that loop.
fn continues(block: &Block) -> bool {
    block.iter().any(|statement| match statement {
        Statement::Continue => true,
        Statement::Block(block) => continues(block),
        Statement::If { accept, reject, .. } => continues(accept) || continues(reject),
        _ => false,
    })
}
